"""Builds the site of all pages in build/site, and fails where a link leads nowhere: ``python docs/make_site.py``.

The pages are copied to build/pages, each where it is in the repository, so that their links stay as they are. Only
README.md becomes index.md, which a web server looks for. The contents of the site are the sections and links of
docs/README.md, and of the overviews to which it links. llms.txt has the same sections, titles and lines, and leads to
the pages as Markdown, which stand beside those of the site.
"""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OVERVIEW = ROOT / "docs" / "README.md"
PARTS = ["*.md", "docs/**/*.md", "docs/*.json", "docs/*/*.svg", "docs/*/*.png", "benchmarks/*.md", "benchmarks/*.png"]
PARTS += ["tests/interop/*.md"]
TO_README = re.compile(r"(\]\([^)\s]*?)\bREADME\.md(?=[#)])")
NOTE = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
"""A note for the tests, behind the language of a block."""
SIGNATURE = re.compile(r"^(#{3,4} `(?:await |async with )?([\w.]+)\(.*`)$", re.MULTILINE)
"""A heading that is a signature: the contents of a page have room for its name only."""
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
ENTRY = re.compile(r"^(?:\||\d+\.) \[.*?\]\((.*?\.md)\)", re.MULTILINE)
ROW = re.compile(r"^\| \[(.*?)\]\((.*?\.md)\) \| (.*?) \|$", re.MULTILINE)
LINK = re.compile(r"\[(.*?)\]\(.*?\)")

Contents = list["str | tuple[str, Contents]"]
"""Pages by their paths, and sections."""


def main() -> int:
    """Copy the pages, build the site, and return the exit code."""
    shutil.rmtree(BUILD / "pages", ignore_errors=True)
    for source in sorted(path for part in PARTS for path in ROOT.glob(part)):
        copy = BUILD / "pages" / path_of(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = NOTE.sub(r"\1", TO_README.sub(r"\1index.md", source.read_text("utf-8")))
            copy.write_text(SIGNATURE.sub(r"\1 { data-toc-label='\2' }", text), "utf-8")
        else:
            shutil.copy(source, copy)
    settings = (ROOT / "zensical.toml").read_text("utf-8")
    head = f"[project]\nnav = {as_toml(contents())}\ncopyright = {json.dumps(f'fastq {version()}, MIT license')}\n"
    (BUILD / "zensical.toml").write_text(settings.replace("[project]\n", head, 1), "utf-8")
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    code = subprocess.run(build, cwd=BUILD, check=False).returncode
    for page in sorted((BUILD / "pages").rglob("*.md")):
        copy = BUILD / "site" / page.relative_to(BUILD / "pages")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, copy)
    (BUILD / "site" / "llms.txt").write_text(list_for_programs(), "utf-8")
    return code


def contents() -> Contents:
    """Return the contents of the site: the sections of docs/README.md, which is itself the second page of the first."""
    start, *others = [(name, entries(OVERVIEW, text)) for name, text in sections()]
    name, (home, *pages) = start
    return [(name, [home, path_of(OVERVIEW), *pages]), *others]


def sections() -> list[tuple[str, str]]:
    """Return the titles and texts of the sections of docs/README.md."""
    _, *parts = SECTION.split(OVERVIEW.read_text("utf-8"))
    return list(zip(parts[::2], parts[1::2], strict=True))


def list_for_programs() -> str:
    """Return llms.txt (https://llmstxt.org): the pages of docs/README.md with a line each."""
    summary = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["site_description"]
    lines = [f"# fastq {version()}", "", f"> {summary}"]
    for name, text in sections():
        lines += ["", f"## {name}", ""]
        for title, target, line in ROW.findall(text):
            page = path_of((OVERVIEW.parent / target).resolve())
            lines.append(f"- [{title}]({page}): {LINK.sub(lambda found: found[1], line)}")
    return "\n".join([*lines, ""])


def version() -> str:
    """Return the version of fastq that the pages are about."""
    return str(runpy.run_path(str(ROOT / "fastq" / "_version.py"))["__version__"])


def entries(page: Path, text: str) -> Contents:
    """Return the pages to which a text links; the overview of a folder becomes a section, which has its title."""
    found: Contents = []
    for target in ENTRY.findall(text):
        path = (page.parent / target).resolve()
        if path.name == "README.md" and path.parent != ROOT:
            below = path.read_text("utf-8")
            title = below.partition("\n")[0].removeprefix("# ").replace("`", "")
            pages = [name for name in entries(path, below) if str(name).startswith(f"{path_of(path.parent)}/")]
            found.append((title, [path_of(path), *pages]))
        else:
            found.append(path_of(path))
    return found


def path_of(page: Path) -> str:
    """Return the path of a page among the copies."""
    return str(page.relative_to(ROOT)).replace("README.md", "index.md")


def as_toml(found: Contents) -> str:
    """Return contents as the value of ``nav``."""
    words = [
        json.dumps(one) if isinstance(one, str) else f"{{ {json.dumps(one[0])} = {as_toml(one[1])} }}" for one in found
    ]
    return f"[{', '.join(words)}]"


if __name__ == "__main__":
    sys.exit(main())
