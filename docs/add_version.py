"""Adds the site in build/site to those of earlier versions: ``python docs/add_version.py DIRECTORY``.

Each version has a folder there. The page above them leads to the newest one that is no candidate, and lists all.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from make_site import BUILD, version

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>fastq</title><meta http-equiv="refresh" content="0; url={newest}/">
<h1>fastq</h1><p>The pages of each version:</p><ul>{items}</ul></html>
"""


def main(directory: Path) -> None:
    """Copy the site, and write the list of all versions anew."""
    mine = directory / version()
    shutil.rmtree(mine, ignore_errors=True)
    shutil.copytree(BUILD / "site", mine)
    (directory / ".nojekyll").touch()  # or GitHub would leave out files whose names begin with _
    names = sorted((each.parent.name for each in directory.glob("*/index.html")), key=place, reverse=True)
    newest = next((name for name in names if "rc" not in name), names[0])
    # The form that the theme's menu of versions reads.
    rows = [{"version": name, "title": name, "aliases": ["latest"] * (name == newest)} for name in names]
    (directory / "versions.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    items = "".join(f'<li><a href="{name}/">{name}</a>' for name in names)
    (directory / "index.html").write_text(PAGE.format(newest=newest, items=items), "utf-8")


def place(name: str) -> list[float]:
    """Return what sorts versions: 0.2.0rc1 is before 0.2.0."""
    release, _, candidate = name.partition("rc")
    return [*map(float, re.findall(r"\d+", release)), float(candidate) if candidate.isdigit() else float("inf")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
