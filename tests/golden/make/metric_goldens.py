#!/usr/bin/env python3
"""Makes tests/golden/metrics.json: scores of real answers by the Python packages that published results use.

    pip install rouge-score==0.1.2 Unidecode==1.4.0
    python3 tests/golden/make/metric_goldens.py make DATA [--out tests/golden/metrics.json]
    python3 tests/golden/make/metric_goldens.py score PREDICTION REFERENCE [REFERENCE ...]

DATA   a folder with squality/test.jsonl (SQuALITY v1.3) and qasper/*.json, *.jsonl
make   scores answers of the data against each other, and writes where to find them but none of their text
score  prints the scores of a text, for the edge cases in tests/it/metrics.rs

Each file is a list of texts: SQuALITY's responses in order; QASPER's answers by sorted paper id, formed as its evaluator
forms them; the `outputs` of prompts. A case is [file, text, change, number, references, scores]: the text with this index
is changed and scored against the texts with the indices in `references`. Changes work on words separated by single spaces:
`none`; `reverse`; `rotate` by `number` words; `opening`: the first `number` words of the story instead; `unaccented`: some
letters without their accents.
Scores: rouge1, rouge2, rougeL (the best reference for each), f1, exact match, and both again with Unidecode as the last
step of the normalisation (null without the package).
"""
import argparse, json, re, string
from collections import Counter
from pathlib import Path
from rouge_score.rouge_scorer import RougeScorer

try:
    from unidecode import unidecode
except ImportError:
    unidecode = None

SQUALITY, QASPER, PROMPTS = "squality/test.jsonl", "qasper/qasper-train10-v0.3.json", "qasper/zeroscrolls.jsonl"
ACCENTS = str.maketrans("àáèéìíòóùú", "aaeeiioouu")
ROUGE = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)


def normalize_answer(s):
    """SQuAD v1.1."""
    s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def f1(prediction, reference, normalize):
    prediction, reference = normalize(prediction).split(), normalize(reference).split()
    same = sum((Counter(prediction) & Counter(reference)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(prediction), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def scores(prediction, references):
    rouge = ROUGE.score_multi(references, prediction)
    found = [rouge[kind].fmeasure for kind in ("rouge1", "rouge2", "rougeL")]
    for normalize in (normalize_answer, (lambda s: unidecode(normalize_answer(s))) if unidecode else None):
        if normalize is None:
            found += [None, None]
            continue
        found.append(max(f1(prediction, r, normalize) for r in references))
        found.append(float(any(normalize(prediction) == normalize(r) for r in references)))
    return found


def answer(a):
    if a["unanswerable"]:
        return "Unanswerable"
    if a["extractive_spans"]:
        return ", ".join(a["extractive_spans"])
    return a["free_form_answer"] or ("Yes" if a["yes_no"] else "No")


def read(data):
    """The texts of each file, and the story of each response of SQuALITY."""
    lines = lambda name: [json.loads(line) for line in (data / name).open(encoding="utf-8")]
    stories = lines(SQUALITY)
    responses = [(r["response_text"], s["document"]) for s in stories for q in s["questions"] for r in q["responses"]]
    papers = json.loads((data / QASPER).read_text(encoding="utf-8"))
    texts = {
        SQUALITY: [response for response, _ in responses],
        QASPER: [answer(a["answer"]) for _, p in sorted(papers.items()) for q in p["qas"] for a in q["answers"]],
        PROMPTS: [output for prompt in lines(PROMPTS) for output in prompt["outputs"]],
    }
    return texts, [story for _, story in responses]


def chosen(texts):
    """(file, text, change, number, references). SQuALITY has four responses to a question, of 230 words on average."""
    for first in range(0, len(texts[SQUALITY]), 4):
        question, four = first // 4, range(first, first + 4)
        mine = first + question % 4
        yield SQUALITY, mine, "none", 0, [i for i in four if i != mine]
        yield SQUALITY, first, "none", 0, [first + 1]
        if question % 2:
            yield SQUALITY, first + 1, "rotate", 7 * question + 1, [first + 1]
            yield SQUALITY, first + 2, "reverse", 0, [first + 3]
        if question % 3 == 0:
            yield SQUALITY, first, "none", 0, [(first + 164) % len(texts[SQUALITY])]
        if question % 5 == 0:
            yield SQUALITY, first, "opening", 1500, list(four)
    for name in (QASPER, PROMPTS):
        for i in range(len(texts[name]) - 1):
            yield name, i, "none", 0, [i + 1]
            if i % 4 == 0:
                yield name, i, "reverse", 0, [i]
    for name in texts:
        for i, text in enumerate(texts[name]):
            if text.translate(ACCENTS) != text:
                yield name, i, "unaccented", 0, [i]


def changed(text, story, change, number):
    words = text.split(" ")
    if change == "reverse":
        words.reverse()
    elif change == "rotate":
        cut = number % len(words)
        words = words[cut:] + words[:cut]
    elif change == "opening":
        words = story.split(" ")[:number]
    elif change == "unaccented":
        words = text.translate(ACCENTS).split(" ")
    return " ".join(words)


def make(data, out):
    texts, stories = read(data)
    lines = []
    for name, i, change, number, references in chosen(texts):
        prediction = changed(texts[name][i], stories[i] if name == SQUALITY else "", change, number)
        found = scores(prediction, [texts[name][r] for r in references])
        found = [None if score is None else round(score, 12) for score in found]
        lines.append(json.dumps([name, i, change, number, references, found], separators=(",", ":")))
    out.write_text('{"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{len(lines)} cases, {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("make")
    command.add_argument("data", type=Path)
    command.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "metrics.json")
    command = commands.add_parser("score")
    command.add_argument("prediction")
    command.add_argument("references", nargs="+")
    given = parser.parse_args()
    if given.command == "make":
        make(given.data, given.out)
    else:
        print(scores(given.prediction, given.references))
