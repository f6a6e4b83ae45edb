#!/usr/bin/env python3
"""Makes tests/golden/longbench.json: LongBench's own scores, prompts and letters for made-up texts.

    pip install rouge==1.0.1 fuzzywuzzy==0.18.0 jieba==0.42.1 numpy      (without python-Levenshtein, as its requirements.txt)
    git clone https://github.com/THUDM/LongBench
    python3 tests/golden/make/longbench_goldens.py LONGBENCH [--out tests/golden/longbench.json]

scores   [subset, answer, reference, classes, score] of metrics.py, one reference each
best     [subset, answer, references, classes, percent] of eval.py: first lines, several references, two decimals
prompts  {subset: digest} of the templates filled with the row in ROW, as the program digests texts
v2       the same of prompts/0shot.txt
letters  [answer, letter or null] of extract_answer in pred.py
"""
import argparse, ast, hashlib, json, random, re, sys, warnings
from pathlib import Path

warnings.filterwarnings("ignore")

ROW = {"context": "Pa {input} {x} §\n\n\"q\" \\n 狐", "input": "Who {context} ran?"}
V2 = {"context": " \x1c The $Q$ fox.\n", "question": "Who $C_A$?\t", "choice_A": " a $C_B$", "choice_B": "b", "choice_C": "c\u00a0", "choice_D": "$DOC$"}
WORDS = "the a an fox Fox owl owl's ran, ran. Ran naïve café 12 3.5 — “so” U.S. end... well-known . the_ _a 狐 и\u0301 x\u00a0y".split(" ")
CLASSES = ["Food", "Food and drink", "City", "Other city", "Date", "Person", "Per", "City"]
LETTERS = [
    "The correct answer is (B).", "**The correct answer is (C)**", "The correct answer is D", "The correct answer is E",
    "The correct answer is (E) or The correct answer is (A)", "The correct answer is A. No: The correct answer is (B)", "",
    "the correct answer is (A)", "The *correct* answer is *(*D*)*", "The correct answer is (AB", "The correct answer is (insert",
    "I think (C)", "The correct answer is\n(C)", "The correct answer is (É)", "The correct answer is (",
]


def digest(text):
    """As digest_of in src/task/data/texts.rs."""
    text = text.encode()
    return "sha256:" + hashlib.sha256(len(text).to_bytes(8, "little") + text).digest()[:8].hex()


def some(draw, most):
    """Words with single and other white space between them."""
    words = draw.choices(WORDS, k=draw.randrange(most))
    return "".join(word + draw.choice([" ", " ", " ", " ", ". ", "  ", "\n", "\t", ".", "\x1d", "\u3000"]) for word in words)


def changed(draw, text, parts):
    """A text with a few characters replaced, removed or put in."""
    text = list(text)
    for _ in range(draw.randrange(12)):
        at = draw.randrange(len(text) + 1)
        text[at : at + draw.randrange(3)] = draw.choice(parts)
    return "".join(text)


def texts(draw):
    reference = some(draw, 40)
    kind = draw.randrange(5)
    if kind == 0:
        return reference, reference
    if kind == 1:
        return changed(draw, reference, WORDS), reference
    if kind == 2:
        return " ".join(draw.sample(reference.split(" "), len(reference.split(" ")))), reference
    if kind == 3:
        return draw.choice(["fox ran. ", "the ", "Ran"]) * draw.randrange(30), reference
    return some(draw, 90), reference


def code(draw):
    names = ["self", "fox", "value", "(", ")", "=", " ", "    ", ".", "return", "i", "# x", "//", "`", "é", "{", "}"]
    line = "".join(draw.choices(names[:11], k=draw.choice([3, 12, 120])))
    answer = changed(draw, line, names)
    return draw.choice(["", "\n\n", "# so\n", "```python\n", "\n// a\n"]) + answer + draw.choice(["", "\nmore", "\n# x"]), line


def numbers(draw):
    parts = ["3", "12", "Paragraph 3", "30", "٣", "３", "²", "½", "3rd", "03", "no", "-3", "3.12", "x3y"]
    return draw.choice([" ", "", ", "]).join(draw.choices(parts, k=draw.randrange(5)))


def cases(draw):
    edges = ["", " ", ".", "...", " . ", "a", "the", "?!", "\n", ". x", "x.", "Fox", "fox", "a.b.c", "\u00a0"]
    for subset in ("qasper", "gov_report", "lcc"):
        for answer in edges:
            for reference in draw.sample(edges, 3):
                yield subset, answer, reference, []
    for subset in ("qasper", "gov_report"):
        for _ in range(70):
            yield subset, *texts(draw), []
    for _ in range(60):
        yield "lcc", *code(draw), []
    for _ in range(30):
        yield "passage_count", numbers(draw), draw.choice(["3", "12"]), []
        yield "passage_retrieval_en", numbers(draw), draw.choice(["Paragraph 3", "paragraph 1 Paragraph 12", "Paragraph x Paragraph 3"]), []
    for _ in range(40):
        classes = draw.sample(CLASSES, draw.randrange(1, 9))
        answer = draw.choice([" ", ", ", ""]).join(draw.choices(classes + ["city", "is"], k=draw.randrange(6)))
        yield "trec", answer, draw.choice(classes), classes


def extract_answer(longbench):
    """The function of pred.py, whose imports are not needed for it."""
    tree = ast.parse((longbench / "pred.py").read_text(encoding="utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "extract_answer")
    found = {"re": re}
    exec(compile(ast.Module([function], []), "pred.py", "exec"), found)
    return found["extract_answer"]


def make(longbench, out):
    sys.path.insert(0, str(longbench / "LongBench"))
    import eval as evaluation

    draw = random.Random(7)
    scores, best = [], []
    for subset, answer, reference, classes in cases(draw):
        score = evaluation.dataset2metric[subset](answer, reference, all_classes=classes)
        scores.append([subset, answer, reference, classes, round(score, 12)])
    for number in range(60):
        subset = ["trec", "triviaqa", "samsum", "qasper", "qmsum", "2wikimqa"][number % 6]
        answer = draw.choice(["", "\n", "\n\n"]) + "\n".join(texts(draw)[0] for _ in range(2))
        references = draw.sample(CLASSES, 2) if subset == "trec" else [texts(draw)[1] for _ in range(draw.randrange(1, 4))]
        if subset == "trec":
            answer = draw.choice(["", "\n"]) + draw.choice(references) + answer
        best.append([subset, answer, references, CLASSES, evaluation.scorer(subset, [answer], [references], CLASSES)])
    templates = json.loads((longbench / "LongBench/config/dataset2prompt.json").read_text(encoding="utf-8"))
    limits = json.loads((longbench / "LongBench/config/dataset2maxlen.json").read_text(encoding="utf-8"))
    chinese = {"multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh"}
    prompts = {name: [digest(template.format(**ROW)), limits[name]] for name, template in templates.items() if name not in chinese}
    v2 = (longbench / "prompts/0shot.txt").read_text(encoding="utf-8")
    for mark, key in [("$DOC$", "context"), ("$Q$", "question")] + [(f"$C_{c}$", f"choice_{c}") for c in "ABCD"]:
        v2 = v2.replace(mark, V2[key].strip())
    letter = extract_answer(longbench)
    letters = [[answer, letter(answer)] for answer in LETTERS]
    lines = lambda items: "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in items) + "\n]"
    text = ",\n".join(
        f'"{key}":{value}'
        for key, value in [
            ("scores", lines(scores)), ("best", lines(best)), ("letters", lines(letters)),
            ("row", json.dumps(ROW)), ("prompts", json.dumps(prompts)), ("v2_row", json.dumps(V2)), ("v2", json.dumps(digest(v2))),
        ]
    )
    out.write_text("{" + text + "}\n")
    print(f"{len(scores)} scores, {len(best)} best ones, {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("longbench", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "longbench.json")
    given = parser.parse_args()
    make(given.longbench, given.out)
