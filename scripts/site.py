#!/usr/bin/env python3
"""Builds the site: the repository's Markdown as a book, with a reference that the program writes, and checks every link.

    scripts/site.py FOLDER [--program target/release/tova-bench] [--mdbook mdbook]

The pages of docs/SUMMARY.md are copied to FOLDER/src under their own paths, so that their links are the same here and on a Git
server; mdBook makes FOLDER/book of them. Ends with exit code 1 if a link, a picture or a heading is missing.
"""

import argparse
import base64
import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r'!?\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s]+)\)|(?:src|href)="(?P<file>[^"]+)"')


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--program", default="target/release/tova-bench")
    arguments.add_argument("--mdbook", default="mdbook")
    arguments = arguments.parse_args()
    source = arguments.folder / "src"
    shutil.rmtree(arguments.folder, ignore_errors=True)
    source.mkdir(parents=True)
    for name in ("book.toml", "site.css"):
        shutil.copy(ROOT / "docs" / name, arguments.folder)

    summary = (ROOT / "docs/SUMMARY.md").read_text()
    pages = re.findall(r"\]\(([^)]+\.md)\)", summary)
    made = {
        "reference/sweeps.md": lambda: sweep_reference(arguments.program),
        "reference/commands.md": lambda: command_reference(arguments.program),
        "docs/notebook.md": lambda: notebook(source / "docs"),
    }
    for page in pages:
        text = made[page]() if page in made else (ROOT / page).read_text()
        write(source / page, book_links(text, page, pages, source))
    write(source / "SUMMARY.md", summary)

    subprocess.run([arguments.mdbook, "build", arguments.folder], check=True)
    missing = check_links(arguments.folder / "book")
    for line in missing:
        print(f"broken: {line}", file=sys.stderr)
    sys.exit(1 if missing else 0)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def book_links(text, page, pages, source):
    """A page's text for the book. Pictures and other files that it links are copied too."""

    def in_book(found):
        target, _ = urldefrag(found["target"] or found["file"])
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = ((ROOT / page).parent / unquote(target)).resolve()
        inside = path.relative_to(ROOT)
        if path.is_dir() or inside.parts[0].startswith("."):
            return found["text"]  # The book has no page for a folder, and its server none for a hidden file.
        if path.is_file() and str(inside) not in pages and path.suffix != ".ipynb":
            (source / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, source / inside)
        # mdBook makes index.html of README.md, but leaves links to it as they are.
        return found[0].replace("README.md", "index.md").replace("notebook.ipynb", "notebook.md")

    return LINK.sub(in_book, text)


def notebook(folder):
    """docs/notebook.ipynb as Markdown, with its pictures in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, cell in enumerate(json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]):
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"notebook-{number}.png"
                (folder / picture).write_bytes(base64.b64decode("".join(data["image/png"])))
                parts.append(f"![Output]({picture})")
            else:
                shown = "".join(output.get("text", data.get("text/plain", []))).rstrip()
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts) + "\n"


def sweep_reference(program):
    schema = json.loads(subprocess.run([program, "schema"], check=True, capture_output=True, text=True).stdout)
    lines = ["# Keys of a sweep", "", "Written from `tova-bench schema`. [Sweeps](../docs/sweeps.md) explains them.", ""]
    tasks = schema["properties"]["tasks"]["items"]["properties"]
    sections(lines, "The sweep", schema, 2)
    for name, task in tasks.items():
        sections(lines, f"`{name}`", task, 2)
    return "\n".join(lines) + "\n"


def sections(lines, title, schema, level):
    """A table of an object's keys, then one of each key that is an object itself."""
    lines += ["#" * level + f" {title}", "", one_line(schema.get("description", "")), ""]
    lines += ["| key | value | default | |", "|---|---|---|---|"]
    required, deeper = schema.get("required", []), []
    for key, value in schema["properties"].items():
        default = "required" if key in required else code(value.get("default"))
        lines.append(f"| `{key}` | {kind(value)} | {default} | {one_line(value.get('description', ''))} |")
        if key != "tasks":
            deeper += [(f"{title} · `{key}`", of) for of in objects(value)]
    lines.append("")
    for title, value in deeper:
        sections(lines, title, value, level + 1)


def objects(schema):
    """The schemas of mappings with known keys that a value may be or hold."""
    if "properties" in schema:
        return [schema]
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", []), *schema.get("oneOf", [])]
    return [found for one in inner if isinstance(one, dict) for found in objects(one)]


def kind(schema):
    """What a value may be, in a few words."""
    if "enum" in schema or "const" in schema:
        return ", ".join(code(value) for value in schema.get("enum", [schema.get("const")]) if value is not None)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(filter(None, map(kind, schema[several]))))
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else [one for one in types if one != "null"]
    words = {"array": "list", "object": "mapping", "number": "number", "integer": "whole number", "boolean": "true or false"}
    text = " or ".join(words.get(one, "text") for one in types)
    if "items" in schema and types == ["array"]:
        items = kind(schema["items"])
        text = f"list: {items}" if items else text
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and most < 1e6:
        text += f", {least:g} to {most:g}"
    elif least is not None and least > 0:
        text += f", at least {least:g}"
    return text


def code(value):
    return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`".replace('`"', "`").replace('"`', "`")


def one_line(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def command_reference(program):
    def helped(*command):
        return subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True).stdout.rstrip()

    top = helped()
    commands = re.findall(r"^  (\w+) ", top.split("Commands:")[1].split("Options:")[0], re.M)
    lines = ["# Options of the commands", "", "Written from `--help`. [Commands](../docs/commands.md) explains them.", ""]
    lines += ["```text", top, "```", ""]
    for command in commands:
        if command != "help":
            lines += [f"## `{command}`", "", "```text", helped(command), "```", ""]
    return "\n".join(lines)


class Page(html.parser.HTMLParser):
    """The ids and links of a page."""

    def __init__(self):
        super().__init__()
        self.ids, self.links = set(), set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        self.links.update(filter(None, (attributes.get("href"), attributes.get("src"))))


def check_links(book):
    """Links of the book that lead nowhere, outside ones left out."""
    pages = {}
    for path in sorted(book.rglob("*.html")):
        pages[path.resolve()] = page = Page()
        page.feed(path.read_text())
    missing = []
    for path, page in pages.items():
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in sorted(page.links):
            target, fragment = urldefrag(link)
            if "://" in link or link.startswith(("mailto:", "data:", "javascript:")):
                continue
            found = (path.parent / unquote(target)).resolve() if target else path
            if found.is_dir():
                found /= "index.html"
            if not found.exists():
                missing.append(f"{path.relative_to(book.resolve())}: {link}")
            elif fragment and found in pages and unquote(fragment) not in pages[found].ids:
                missing.append(f"{path.relative_to(book.resolve())}: {link} has no such heading")
    return missing


if __name__ == "__main__":
    main()
