"""Every command and snippet of the README runs as it stands there."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from small_pictures import ARGUMENTS, write_pictures

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
    for number, block in enumerate(blocks("toml")):
        (path / f"{tomllib.loads(block).get('name', number)}.toml").write_text(block)
    write_pictures(path / "data")
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        words, where = [sys.executable, *words[1:]], ROOT
    else:
        assert words[0] == "remanence"
        small = ARGUMENTS if words[1] == "reproduce" else []  # its real cells need the real data and hours
        words, where = [sys.executable, "-m", "remanence.cli", *words[1:], *small], folder
    data = os.environ | {"REMANENCE_DATA": str(folder / "data")}
    done = subprocess.run(words, cwd=where, env=data, capture_output=True, text=True, timeout=240)
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


@pytest.mark.parametrize("number", range(len(blocks("toml"))))
def test_experiment_runs(number: int, tmp_path: Path) -> None:
    assert tomllib.loads(blocks("toml")[number])["rounds"] <= 50
    (tmp_path / "own.toml").write_text(blocks("toml")[number])
    words = [sys.executable, "-m", "remanence.cli", "run", "own.toml", "--quiet", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_links_and_pictures_of_the_readme_exist() -> None:
    paths = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert paths
    assert all((ROOT / path).exists() for path in paths)
