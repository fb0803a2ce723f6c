"""Every command and snippet of the README runs as it stands there."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


COMMANDS = [
    line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("readme")
    (path / "line-7.toml").write_text(blocks("toml")[0])
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        words, where = [sys.executable, *words[1:]], ROOT
    else:
        assert words[0] == "remanence"
        words, where = [sys.executable, "-m", "remanence.cli", *words[1:]], folder
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_snippet_runs(number: int) -> None:
    done = subprocess.run([sys.executable, "-c", blocks("python")[number]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)
    assert named == ["demo", "test"]
    assert all(re.search(rf"^{name}:", makefile, flags=re.MULTILINE) for name in named)


def test_experiment_of_the_readme_is_small() -> None:
    assert tomllib.loads(blocks("toml")[0])["rounds"] <= 50


def test_links_and_pictures_of_the_readme_exist() -> None:
    paths = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert paths
    assert all((ROOT / path).exists() for path in paths)
