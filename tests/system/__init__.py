"""The command as a person uses it."""

import pytest

pytest.register_assert_rewrite("system.running")
