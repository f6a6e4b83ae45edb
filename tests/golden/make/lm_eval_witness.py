#!/usr/bin/env python3
"""Runs twelve tasks of lm-evaluation-harness 0.4.13 with its own `hf` model and with tova-bench, and compares every number.

    pip install "lm_eval[hf]==0.4.13" "transformers>=5,<6" polars
    python3 tests/golden/make/lm_eval_witness.py models/pocket OUT [--rows 50] [--bench target/release/tova-bench]
    python3 tests/golden/make/lm_eval_witness.py models/pocket OUT --bench target/release/tova-bench --client
    python3 tests/golden/make/lm_eval_witness.py models/pocket OUT --goldens tests/golden/lm_eval.json --rows 8

The task files are those of the installed package, unchanged, or the program's own where theirs name Python; their rows are made
up here, in the columns that each has. With the full cache prompts must be equal to the character, log-likelihoods to 1e-3,
answers to the character, and metrics to all digits shown. --client runs the tasks once more with tova_bench.lm_eval, whose
numbers must be those of the sweep. --goldens writes what tests/it/benchmarks.rs compares the built-in files with.
"""
import argparse, hashlib, json, math, os, random, subprocess, sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

NAMES = "Mara Tolin Oskar Ilse Bruno Petra Anton Vera Emil Greta Jonas Klara".split()
PLACES = "the mill|the harbour|a small village|the old library|the market|the lighthouse".split("|")
THINGS = "a lamp|three apples|a letter|the blue boat|an iron key|a map of the coast".split("|")
ACTS = "found|sold|carried|painted|lost|repaired".split("|")


def sentence(draw):
    return f"{draw.choice(NAMES)} {draw.choice(ACTS)} {draw.choice(THINGS)} near {draw.choice(PLACES)}."


def text(draw, n):
    return " ".join(sentence(draw) for _ in range(n))


def gsm8k(draw):
    a, b = draw.randrange(2, 90), draw.randrange(2, 90)
    who = draw.choice(NAMES)
    return {"question": f"{who} has {a} apples and buys {b} more. How many apples does {who} have?",
            "answer": f"{who} has {a} + {b} = <<{a}+{b}={a + b}>>{a + b} apples.\n#### {a + b}"}


def triviaqa(draw):
    who = draw.choice(NAMES)
    return {"question": sentence(draw) + " Who was it", "question_id": str(draw.random()),
            "answer": {"aliases": [who, who.upper(), f"{who} O'Hara", 'the "' + who + '"'], "value": who}}


def arc(draw):
    choices = draw.sample(PLACES, 4)
    return {"id": str(draw.random()), "question": sentence(draw) + " Where?", "answerKey": draw.choice("ABCD"),
            "choices": {"text": choices, "label": ["A", "B", "C", "D"]}}


def piqa(draw):
    return {"goal": "How was it done? " + sentence(draw), "sol1": text(draw, 1), "sol2": text(draw, 2), "label": draw.randrange(2)}


def sciq(draw):
    one, two, three, four = draw.sample(NAMES, 4)
    return {"support": " " + text(draw, 3), "question": "Who was there?", "distractor1": one, "distractor2": two,
            "distractor3": three, "correct_answer": four}


def lambada(draw):
    return {"text": text(draw, 4)[:-1]}


def pile(draw):
    return {"text": "\n".join(text(draw, draw.randrange(1, 40)) for _ in range(draw.randrange(1, 3))) + " café\t–  é\n", "meta": {"pile_set_name": "x"}}


def mmlu(draw):
    return {"question": " " + sentence(draw) + " Where? ", "choices": draw.sample(PLACES, 4), "answer": draw.randrange(4), "subject": "anatomy"}


def blimp(draw):
    words = sentence(draw)[:-1].split(" ")
    return {"sentence_good": " ".join(words) + ".", "sentence_bad": " ".join(words[::-1]) + ".", "UID": "x"}


def arc_es(draw):
    row = arc(draw)
    return {**row, "question": "¿Dónde está? " + row["question"]}


def wikitext(draw):
    words = text(draw, draw.randrange(3, 40)).replace(".", " .").replace("iron", "iron @-@ clad").replace("blue", "( blue ; \" old \" )")
    return {"page": f" = The {draw.choice(NAMES)} = \n \n {words} It 's 1 @,@ {draw.randrange(100, 999)} [ km ] , 2 @.@ 5 ° N long : 'yes ' ! \n = = Other = = \n é {{ x }} \n"}


def hellaswag(draw):
    endings = [f" {text(draw, 1)} [title] It  was [sub] {draw.choice(PLACES)}." for _ in range(4)]
    return {"activity_label": "Sailing a boat", "ctx_a": text(draw, 2) + " [header] How", "ctx_b": draw.choice(["", "the MAN", "she"]), "endings": endings, "label": str(draw.randrange(4))}


TASKS = {
    "gsm8k": ("gsm8k/gsm8k.yaml", gsm8k), "triviaqa": ("triviaqa/default.yaml", triviaqa), "arc_easy": ("arc/arc_easy.yaml", arc),
    "piqa": ("piqa/piqa.yaml", piqa), "sciq": ("sciq/sciq.yaml", sciq), "lambada_openai": ("lambada/lambada_openai.yaml", lambada),
    "pile_10k": ("pile_10k/pile_10k.yaml", pile), "mmlu_anatomy": ("mmlu/default/mmlu_anatomy.yaml", mmlu),
    "wikitext": ("wikitext/wikitext.yaml", wikitext), "hellaswag": ("hellaswag/hellaswag.yaml", hellaswag),
    "blimp_adjunct_island": ("blimp/adjunct_island.yaml", blimp), "arc_challenge_mt_es": ("arc_mt/arc_challenge_mt_es.yaml", arc_es),
}
# Their files name Python, so the program's own are compared with them.
OWN = {"wikitext", "hellaswag"}
SPLITS = ["train", "validation", "test", "dev"]
# Our names of their metrics.
SAME = {"f1": "f1_choice", "perplexity": "target_perplexity"}
POOLED = {"target_perplexity": math.exp, "word_perplexity": math.exp, "byte_perplexity": math.exp}


def write_rows(out, rows):
    """The rows of every task and split. Returns {task: {split: file}}."""
    files = {}
    for number, (task, (_, make)) in enumerate(TASKS.items()):
        folder = out / "rows" / task
        folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            draw = random.Random(f"{number} {split}")
            file = folder / f"{split}.jsonl"
            file.write_text("".join(json.dumps(make(draw), ensure_ascii=False) + "\n" for _ in range(rows)))
            files.setdefault(task, {})[split] = str(file)
    return files


def hf(model, length):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=model, device="cpu", dtype="float32", max_length=length, batch_size=1)


def harness(lm, files, out):
    """What the harness measures: {task: {"samples": [...], "metrics": {...}}}."""
    import lm_eval

    folder = Path(lm_eval.__file__).parent / "tasks"
    found = {}
    for task, splits in files.items():
        # The file itself, with other rows.
        own = out / f"{task}.yaml"
        keys = {"include": str(folder / TASKS[task][0]), "task": task, "dataset_path": "json", "dataset_name": None,
                "dataset_kwargs": {"data_files": splits}}
        own.write_text(json.dumps(keys))
        result = lm_eval.simple_evaluate(model=lm, tasks=[str(own)], log_samples=True, bootstrap_iters=0)
        samples = []
        for sample in result["samples"][task]:
            arguments = sample["arguments"].values() if isinstance(sample["arguments"], dict) else sample["arguments"]
            arguments = [list(a.values()) if isinstance(a, dict) else list(a) for a in arguments]
            samples.append({"doc": sample["doc_id"], "filter": sample["filter"], "arguments": arguments,
                            "answers": [response[0] for response in sample["resps"]], "filtered": sample["filtered_resps"]})
        metrics = {key: value for key, value in result["results"][task].items() if isinstance(value, float) and "stderr" not in key}
        found[task] = {"samples": samples, "metrics": metrics}
        print(f"harness: {task}: {metrics}", file=sys.stderr)
    return found


def ours(model, bench, files, out, length, policies, sizes):
    """The rows that tova-bench measures with the same task files."""
    import lm_eval, polars
    tasks = Path(lm_eval.__file__).parent / "tasks"
    entries = [f"  - benchmark: {{task: {task if task in OWN else tasks / TASKS[task][0]}, dataset: {Path(splits['test']).parent}/, length: {length}}}"
               for task, splits in files.items()]
    sweep = out / "sweep.yaml"
    sizes = f"cache_sizes: {sizes}\n" if sizes else ""
    sweep.write_text(f"models: [{{source: {Path(model).resolve()}, name: model, dtype: f32}}]\npolicies: {json.dumps(policies)}\n{sizes}tasks:\n" + "\n".join(entries) + "\n")
    subprocess.run([bench, "run", str(sweep), "--results", str(out / "results"), "--no-report"], check=True)
    return polars.read_parquet(out / "results" / "rows.parquet")


def compare(theirs, rows, polars):
    """The largest differences with the full cache. Ends with 1 where anything differs."""
    wrong = 0
    rows = rows.filter(polars.col("policy") == "full")
    for task, of_task in theirs.items():
        mine = rows.filter(polars.col("task") == task)
        whole = mine.filter(polars.col("slice").is_null())
        worst = 0.0
        first_filter = of_task["samples"][0]["filter"]
        for sample in (s for s in of_task["samples"] if s["filter"] == first_filter):
            here = whole.filter(polars.col("sample") == str(sample["doc"]))
            answers = sample["answers"]
            if isinstance(answers[0], str):
                written = here.filter(polars.col("metric") == "new_tokens")["output"][0]
                if written != answers[0]:
                    wrong += 1
                    print(f"{task} {sample['doc']}: answer {written!r} for {answers[0]!r}")
            elif isinstance(answers[0], (list, tuple)):
                found = json.loads(here.filter(polars.col("metric") == "loglikelihood")["output"][0])
                worst = max([worst] + [abs(a[0] - b) for a, b in zip(answers, found, strict=True)])
            else:
                found = -here.filter(polars.col("metric").is_in(["word_perplexity", "byte_perplexity"]))["value"][0]
                worst = max(worst, abs(answers[0] - found))
        shown = []
        for key, value in of_task["metrics"].items():
            name, chain = key.split(",")
            name = SAME.get(name, name)
            here = mine.filter(polars.col("metric") == name)
            sliced = here.filter(polars.col("slice") == "filter", polars.col("slice_name") == chain)
            here = sliced if len(sliced) else here.filter(polars.col("slice").is_null())
            pooled = here["value"].sum() / here["weight"].sum()
            pooled = POOLED.get(name, float)(pooled)
            shown.append(f"{key} {value:.6g}/{pooled:.6g}")
            if abs(pooled - value) > 1e-6 * max(1, abs(value)) + (1e-3 * value if name in POOLED or name == "bits_per_byte" else 0):
                wrong += 1
                shown.append("DIFFERENT")
        if worst > 1e-3:
            wrong += 1
        print(f"{task:22} log-likelihoods within {worst:.1e}; theirs/ours: {'; '.join(shown)}")
    return wrong


# Policies with their cache sizes, and how many prompts the client measures together.
RULES = [(("full", None), 1), (("full", None), 8), (("tova", 64), 1), (("tova", 64), 8), (("tova", 16), 1)]


def client(model, length, rule, batch_size):
    """The harness' model `tova-bench`, in the harness."""
    import tova_bench.lm_eval  # noqa: F401
    from lm_eval.api.registry import get_model

    policy, size = rule
    of_cache = {"policy": policy, "cache_size": size, "max_length": length, "batch_size": batch_size}
    return get_model("tova-bench")(pretrained=model, dtype="float32", **of_cache)


def answers_of(of_task):
    """Each row's answers, without whether they are greedy."""
    first = of_task["samples"][0]["filter"]
    bare = lambda answer: answer[0] if isinstance(answer, (list, tuple)) else answer
    return {s["doc"]: [bare(answer) for answer in s["answers"]] for s in of_task["samples"] if s["filter"] == first}


def swept_answers(rows, task, rule, polars):
    """The same of a sweep's rows."""
    policy, size = rule
    rows = rows.filter(polars.col("policy") == policy, polars.col("task") == task, polars.col("slice").is_null())
    rows = rows if size is None else rows.filter(polars.col("cache_size") == size)
    found = {}
    for row in rows.iter_rows(named=True):
        doc, metric = int(row["sample"]), row["metric"]
        if metric == "loglikelihood":
            found[doc] = json.loads(row["output"])
        elif metric == "word_perplexity":
            found[doc] = [-row["value"]]
        elif metric == "new_tokens" and row["output"] is not None:
            found[doc] = [row["output"]]
    return found


def compare_client(theirs, model, files, length, out, rows, polars):
    """The client in the harness: with the full cache against `hf`, and under every rule to the bit against the sweep."""
    wrong, full = 0, {}
    for rule, batch_size in RULES:
        found = harness(client(model, length, rule, batch_size), files, out)
        for task, of_task in found.items():
            mine, swept = answers_of(of_task), swept_answers(rows, task, rule, polars)
            unequal = sum(mine[doc] != swept.get(doc) for doc in mine)
            said = f"{task:22} {rule[0]} {rule[1]} batch {batch_size}: {len(mine) - unequal} of {len(mine)} rows equal the sweep's"
            if rule[0] == "full":
                full[task] = mine
                worst, others = distance(mine, answers_of(theirs[task]))
                unlike = [key for key, value in of_task["metrics"].items() if not alike(key, value, theirs[task]["metrics"][key])]
                wrong += (worst > 1e-3) + bool(others) + len(unlike)
                said += f"; hf: log-likelihoods within {worst:.1e}, {others} answers differ, metrics {unlike or 'equal'}"
            else:
                moved = sum(mine[doc] != full[task][doc] for doc in mine)
                longest = rows.filter(polars.col("task") == task)["prompt_tokens"].max()
                wrong += longest > rule[1] and not moved
                said += f"; {moved} of them are not the full cache's, prompts have up to {longest} tokens"
            wrong += bool(unequal)
            print(said + "; " + ", ".join(f"{key} {value:.6g}" for key, value in of_task["metrics"].items()), flush=True)
    return wrong


CHAT = """{% for message in messages %}<|{{ message.role }}|>{{ message.content TRIM }}</s>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def compare_chat(model, out, length):
    """Conversations in chat templates that keep and strip white space, as transformers renders them."""
    import shutil
    from transformers import AutoTokenizer

    history = [("system", "Be brief."), ("user", " What  is it?\n"), ("assistant", "It is "), ("user", "Why?"), ("assistant", " Because ")]
    history = [{"role": role, "content": content} for role, content in history]
    wrong = 0
    for trim in ["", "| trim"]:
        folder = out / f"chat{trim[2:]}"
        shutil.copytree(model, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("worlds"))
        (folder / "chat_template.jinja").write_text(CHAT.replace("TRIM", trim))
        mine, theirs = client(str(folder), length, ("full", None), 1), AutoTokenizer.from_pretrained(folder)
        for count in range(1, len(history) + 1):
            opens = history[count - 1]["role"] != "assistant"
            expected = theirs.apply_chat_template(history[:count], tokenize=False, add_generation_prompt=opens, continue_final_message=not opens)
            wrong += mine.apply_chat_template(history[:count], opens) != expected
    print(f"chat templates: {wrong} of {2 * len(history)} conversations differ")
    return wrong


def distance(mine, theirs):
    """The largest difference of numbers, and how many texts differ."""
    pairs = [pair for doc in theirs for pair in zip(mine[doc], theirs[doc], strict=True)]
    numbers = [abs(a - b) for a, b in pairs if not isinstance(a, str)]
    return max(numbers, default=0.0), sum(a != b for a, b in pairs if isinstance(a, str))


def alike(key, mine, theirs):
    """Whether two of the harness' metrics are equal to all digits shown, or follow from log-likelihoods that are near."""
    near = 1e-3 * abs(theirs) if "perplexity" in key or "bits_per_byte" in key else 0.0
    return abs(mine - theirs) <= 1e-6 * max(1, abs(theirs)) + near


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def crafted(doc, number):
    """An answer to a row of gsm8k or triviaqa: right or wrong, in one of the forms that filters and metrics tell apart."""
    if "value" in (doc["answer"] if isinstance(doc["answer"], dict) else {}):
        right = doc["answer"]["value"]
        return [right, f"  {right.upper()}! ", f"'{right}'", "The the " + right, "", right + " O'Hara"][number % 6]
    right = doc["answer"].rsplit(" ", 1)[1]
    return [f"It is so.\n#### {right}", f"#### {right}.00\n", f"I think {right} or 7", f"7, no: ${right}.", "#### -1,000 apples", "none",
            f"#### {right}\n#### 3", f"{right}"][number % 8]


def scores_of_crafted(out, files):
    """What the harness' filters and metrics make of crafted answers: {task: [[row, answer, filter, filtered, exact_match], ...]}."""
    import lm_eval
    from lm_eval.api.model import LM

    class Crafted(LM):
        def generate_until(self, requests):
            return [crafted(request.doc, request.doc_id + len(request.task_name)) for request in requests]

        def loglikelihood(self, requests):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    found = {}
    for task in {"gsm8k", "triviaqa"} & set(files):
        result = lm_eval.simple_evaluate(model=Crafted(), tasks=[str(out / f"{task}.yaml")], log_samples=True, bootstrap_iters=0)
        found[task] = [[s["doc_id"], s["resps"][0][0], s["filter"], s["filtered_resps"][0], s["exact_match"]] for s in result["samples"][task]]
    return found


def goldens(theirs, files, out, path):
    """Rows, digests of prompts, log-likelihoods, answers and metrics."""
    scores = scores_of_crafted(out, files)
    tasks = {}
    for task, of_task in theirs.items():
        first = of_task["samples"][0]["filter"]
        samples = [{"prompts": [digest(a[0]) for a in s["arguments"]], "continuations": [a[1] for a in s["arguments"] if len(a) > 1 and isinstance(a[1], str)],
                    "answers": s["answers"]} for s in of_task["samples"] if s["filter"] == first]
        rows = {split: [json.loads(line) for line in Path(file).read_text().splitlines()] for split, file in files[task].items()}
        tasks[task] = {"rows": rows, "samples": samples, "metrics": of_task["metrics"], "crafted": scores.get(task, [])}
    path.write_text(json.dumps(tasks, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model"), a.add_argument("out", type=Path)
    a.add_argument("--rows", type=int, default=50), a.add_argument("--length", type=int, default=2048)
    a.add_argument("--bench"), a.add_argument("--goldens", type=Path)
    a.add_argument("--client", action="store_true", help="also the harness' model tova-bench; needs this Python's tova_bench")
    a.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    a = a.parse_args()
    files = {task: files for task, files in write_rows(a.out, a.rows).items() if task in a.tasks}
    theirs = harness(hf(a.model, a.length), files, a.out)
    (a.out / "harness.json").write_text(json.dumps(theirs))
    if a.goldens:
        goldens(theirs, files, a.out, a.goldens)
    if a.bench:
        import polars
        rows = ours(a.model, a.bench, files, a.out, a.length, ["full", "tova"], [16, 64])
        wrong = compare(theirs, rows, polars)
        if a.client:
            wrong += compare_chat(a.model, a.out, a.length)
            wrong += compare_client(theirs, a.model, files, a.length, a.out, rows, polars)
        print(f"{wrong} differences")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
