"""Numbers about the prompts that RULER's own scripts make, and its scores, for the tests of the task `ruler`.

    pip install numpy scipy tqdm pyyaml
    python tests/golden/make/ruler_goldens.py RULER > tests/golden/ruler.json

RULER is a checkout of github.com/NVIDIA/RULER. Its generators run unchanged, with modules replaced: a tokenizer whose tokens are
four bytes, the words of src/task/ruler/words.txt, sentences split after `.`, `!` and `?` (nltk's data must be downloaded), and a running
text, questions and rare words of our own (RULER needs no rare ones at these lengths, but reads the file).
Only counts, scores and the prompts' fixed wording are written.
"""

import collections
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LENGTHS = [2048, 8192]
SAMPLES = 3
STUBS = {
    "tokenizer.py": """
class FourBytes:
    def text_to_tokens(self, text):
        return range(-(-len(text.encode()) // 4))
def select_tokenizer(tokenizer_type, tokenizer_path):
    return FourBytes()
""",
    "manifest_utils.py": """
import json
def write_manifest(path, rows):
    open(path, "w").write("".join(json.dumps(row) + "\\n" for row in rows))
""",
    "wonderwords.py": f"""
class random_word:
    def _get_words_from_text_file(name):
        section = name.removesuffix("list.txt") + "s"
        text = open({str(pathlib.Path(__file__).resolve().parents[3] / "src/task/ruler/words.txt")!r}).read()
        return text.split("# " + section + "\\n")[1].split("#")[0].split()
""",
    "nltk/__init__.py": "",
    "nltk/tokenize.py": """
import re
def sent_tokenize(text):
    return re.split(r"(?<=[.!?]) ", text)
""",
}


def essay():
    return " ".join(f"Sentence number {i} tells of town {i % 7}." for i in range(400))


def squad():
    def paragraph(a, p):
        context = f"Town {a} has a river. House {p} of town {a} was built in {1000 + 10 * a + p} by a mason."
        answer = {"question": f"When was house {p} of town {a} built?", "answers": [{"text": str(1000 + 10 * a + p)}, {"text": f"in {1000 + 10 * a + p}"}], "is_impossible": False}
        open_question = {"question": "Why?", "answers": [], "is_impossible": True}
        return {"context": context, "qas": [open_question, answer]}
    return {"data": [{"title": f"Town {a}", "paragraphs": [paragraph(a, p) for p in range(6)]} for a in range(40)]}


def hotpot():
    def context(q):
        return [[f"Hill {(q * 3 + i) % 300}", [f"Hill {(q * 3 + i) % 300} is high.", f" Its lake is Lake {(q * 3 + i) % 300 + 100}."]] for i in range(10)]
    return [{"question": f"Which lake is on hill {q * 3}?", "answer": f"Lake {q * 3 + 100}", "context": context(q)} for q in range(100)]


UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def skeleton(text):
    """Wording with what is drawn replaced."""
    text = re.sub(UUID, "UUID", text)
    text = re.sub(r"\b[a-z0-9'-]+-[a-z0-9'-]+(?=,| mentioned)", "KEY", text)
    text = re.sub(r"\b[A-Z]{5}\b", "XXXXX", text)
    return re.sub(r"\b\d{5,7}\b", "NUMBER", text)


def facts(task, row):
    text, found = row["input"], {"tokens": row["length"], "references": len(row["outputs"])}
    whole = text + row["answer_prefix"]
    assert all(answer in text for answer in row["outputs"]) or task.startswith("qa")
    if task.startswith("niah"):
        needles = re.findall(r"One of the special magic (?:words|numbers|uuids) for (.*?) is: (.*?)\.", text)
        head, tail = whole.index("\n") + 1, whole.rindex("\nWhat ")
        found |= {"needles": len(needles), "keys": len({key for key, _ in needles}), "noise": text.count("The grass is green."),
                  "lines": text[head:tail].count("\n") + 1, "words": len(text[head:tail].split()),
                  "begins": skeleton(whole[:head]), "ends": skeleton(whole[tail:])}
    elif task == "vt":
        shown, asked = [part for part in whole.split("Memorize and track")[1:]]
        names = r"VAR ([A-Z]+) = "
        found |= {"shown_noise": shown.count("The grass is green."), "noise": asked.count("The grass is green."),
                  "statements": len(re.findall(names, asked)), "letters": [len(re.findall(names, part)[0]) for part in (shown, asked)],
                  "begins": skeleton(re.sub(r"(?<== )VAR [A-Z]+ |(?<=VAR )[A-Z]{3}\b|\b[A-Z]{3}\b(?= [A-Z]{3}|\n)", "XXX", whole[whole.index("\nQuestion"):whole.index("Memorize and track", 9)])),
                  "ends": skeleton(whole[whole.rindex("\nQuestion"):])}
    elif task == "cwe":
        shown, asked = whole.split("Below is a numbered list of words.")[1:]
        def counts(part):
            part = part[:part.index("\nQuestion")]
            words = re.findall(r"\d+\. ([^\n]+?)(?= \d+\. |$)", part)
            return sorted(collections.Counter(collections.Counter(words).values()).items())
        found |= {"shown": counts(shown), "list": counts(asked), "ends": whole[whole.rindex("\nQuestion"):],
                  "begins": re.sub(r"\d+\. [^\n]+", "LIST", whole[:whole.rindex("\nQuestion")])}
    elif task == "fwe":
        words = whole[whole.index("coded words. ") + 13:whole.rindex("\nQuestion")].split(" ")
        found |= {"counts": sorted(collections.Counter(words).values(), reverse=True)[:12], "words": len(words), "different": len(set(words)), "dots": words.count("..."),
                  "begins": whole[:whole.index("coded words. ") + 13], "ends": whole[whole.rindex("\nQuestion"):]}
    else:
        found |= {"documents": len(re.findall(r"^Document \d+:$", whole, re.M)), "begins": whole[:whole.index("Document 1:")],
                  "ends": whole[whole.rindex("\n\nAnswer the question"):]}
    return found


def scores(ruler):
    spec = importlib.util.spec_from_file_location("constants", ruler / "scripts/eval/synthetic/constants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = (ruler / "scripts/eval/evaluate.py").read_text()
    function = re.search(r"def postprocess_pred.*?return predict_str\n", source, re.S)[0]
    scope = {"re": re}
    exec(function, scope)
    table = []
    answers = ["", "  ", "1234567", "It is 1234567.", "One 1234567, two 7654321", "calm-river and CALM-sea", "calm\x0briver", "calm\triver\x1f",
               "calm\nriver", "ABCDE ABCDF", "Größe ÉCOLE", "12345 67", "\x00ABCDE\x01", "abcde, xyzzy; abcdf"]
    references = [["1234567"], ["1234567", "7654321", "1111111"], ["calm-river", "Calm-Sea"], ["calm\nriver"], ["ABCDE", "ABCDF", "XYZZY"], ["größe", "école"], ["abcde", "abcde"]]
    for answer in answers:
        for reference in references:
            done = scope["postprocess_pred"](answer, {})
            table.append([answer, reference, module.string_match_all([done], [reference]), module.string_match_part([done], [reference])])
    return table


def main():
    ruler = pathlib.Path(sys.argv[1]).resolve()
    spec = importlib.util.spec_from_file_location("task_constants", ruler / "scripts/data/synthetic/constants.py")
    constants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(constants)
    import yaml
    tasks = yaml.safe_load((ruler / "scripts/synthetic.yaml").read_text())
    golden = {"answer_tokens": {}, "prompts": {}, "scores": scores(ruler)}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copytree(ruler / "scripts/data", folder / "data")
        (folder / "data/tokenizer.py").unlink()
        (folder / "data/manifest_utils.py").unlink()
        for name, text in STUBS.items():
            (folder / "data" / name).parent.mkdir(exist_ok=True)
            (folder / "data" / name).write_text(text)
        texts = folder / "data/synthetic/json"
        for name, content in [("PaulGrahamEssays", {"text": essay()}), ("squad", squad()), ("hotpotqa", hotpot()), ("english_words", {i: f"w{i}" for i in range(10000)})]:
            (texts / f"{name}.json").write_text(json.dumps(content))
        for name, config in tasks.items():
            base = constants.TASKS[config["task"]]
            golden["answer_tokens"][name] = base["tokens_to_generate"]
            for length in LENGTHS:
                command = [sys.executable, f"synthetic/{config['task']}.py", "--save_dir", str(folder), "--save_name", f"{name}-{length}",
                           "--tokenizer_path", "none", "--max_seq_length", str(length), "--tokens_to_generate", str(base["tokens_to_generate"]),
                           "--num_samples", str(SAMPLES), "--template", base["template"] + base["answer_prefix"]]
                command += [part for key, value in config["args"].items() for part in (f"--{key}", str(value))]
                print(name, length, file=sys.stderr)
                try:
                    subprocess.run(command, cwd=folder / "data", check=True, timeout=60, stderr=subprocess.DEVNULL,
                                   env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "data"), os.environ.get("PYTHONPATH", "")])})
                except subprocess.TimeoutExpired:
                    # RULER repeats for ever what does not fit.
                    print(f"{name} does not fit into {length}", file=sys.stderr)
                    continue
                rows = [json.loads(line) for line in open(folder / f"{name}-{length}/validation.jsonl")]
                golden["prompts"][f"{name}@{length}"] = [facts(name, row) for row in rows]
    # Equal for all samples, mostly: written once.
    for key, rows in golden["prompts"].items():
        same = {field: rows[0][field] for field in rows[0] if all(row[field] == rows[0][field] for row in rows)}
        golden["prompts"][key] = {"same": same, "samples": [{field: row[field] for field in row if field not in same} for row in rows]}
    print(json.dumps(golden, indent=1, ensure_ascii=False))


main()
