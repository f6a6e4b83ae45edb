#!/usr/bin/env python3
"""Makes tests/golden/math.json: pairs of answers, whether they are equal, and what Hendrycks' MATH says of them.

    git clone https://github.com/hendrycks/math
    python3 tests/golden/make/math_goldens.py math/modeling/math_equivalence.py [--out tests/golden/math.json]

Each pair below was judged by hand. `hendrycks` is the result of `is_equiv` (math_equivalence.py of commit 940d1bf), so that a pair
where it differs from `equal` is one where the program departs from it on purpose.
"""
import argparse, importlib.util, json

EQUAL = [
    # Fractions.
    (r"\frac12", r"\frac{1}{2}"), (r"\dfrac{1}{2}", r"\frac{1}{2}"), (r"\tfrac{3}{4}", r"\frac34"), ("1/2", r"\frac{1}{2}"),
    ("0.5", r"\frac{1}{2}"), (".5", "0.5"), ("0.5", "1/2"), (r"\frac1{72}", r"\frac{1}{72}"), (r"\frac{72}1", "72"),
    ("0.25", r"\frac{1}{4}"), (r"\frac{2}{4}", r"\frac{1}{2}"), (r"-\frac{1}{2}", r"\frac{-1}{2}"), ("-1/2", r"-\frac12"),
    (r"\frac{1}{-2}", r"-\frac{1}{2}"), (r"2\frac{1}{3}", r"\frac{7}{3}"), (r"\cfrac{5}{6}", "5/6"), ("3.50", "3.5"), ("7.0", "7"),
    (r"\frac{\pi}{4}", r"\pi/4"), (r"\frac{3\pi}{4}", r"3\pi/4"), (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"),
    (r"-\frac{\sqrt{3}}{2}", r"-\sqrt3/2"), (r"\frac{ 1 }{ 2 }", r"\frac{1}{2}"), (r"\frac{a}{b}", r"\frac ab"), ("4/2", "2"),
    (r"\frac{\sqrt 2}{3}", r"\frac{\sqrt{2}}{3}"), ("x/2", r"\frac{x}{2}"), (r"\dfrac{x+1}{2}", r"\frac{x+1}{2}"),
    # Roots and powers.
    (r"\sqrt2", r"\sqrt{2}"), (r"3\sqrt5", r"3\sqrt{5}"), (r"\sqrt 7", r"\sqrt{7}"), (r"\sqrt[3]{2}", r"\sqrt[3]2"),
    (r"2^{3}", "2^3"), (r"x^{2}+1", "x^2 + 1"), (r"52_{8}", "52_8"), (r"10^{10}", "10^{10}"), ("√2", r"\sqrt{2}"),
    # Units, money, percent, degrees.
    (r"5\text{ cm}", "5"), (r"5 \text{cm}", "5"), (r"12\text{ cm}^2", "12"), (r"12\mbox{ inches}", "12"), ("18 inches", "18"),
    ("5 square units", "5"), (r"\$18.90", "18.90"), ("$18.90", "18.9"), (r"\$1,000", "1000"), (r"50\%", "50"), ("50%", "50"),
    (r"90^\circ", "90"), (r"90^{\circ}", "90"), ("90°", "90"), (r"45 \text{ degrees}", "45"), ("45 degrees", r"45^\circ"),
    (r"\frac{3}{4}\text{ miles}", r"\frac{3}{4}"), (r"10\,\mathrm{m}", "10"), ("12 dollars", r"\$12"), (r"6 \text{ ways}.", "6"),
    ("8 feet", "8"),
    # Thousands separators, zeros, signs.
    ("1,000", "1000"), ("10{,}000", "10000"), ("1,234,567", "1234567"), (r"1\,000", "1000"), (r"10,\!080", "10080"),
    ("-1,000.5", "-1000.5"), ("033", "33"), ("007", "7"), ("0", "000"), ("+5", "5"), ("−3", "-3"), ("-0", "0"),
    # Text.
    (r"\text{Evelyn}", "Evelyn"), (r"\text{ Evelyn }", "evelyn"), (r"\textbf{even}", r"\text{even}"), ("Yes", r"\text{yes}"),
    (r"\text{(C)}", "C"), ("(B)", "B"), (r"\textbf{(D)}", "(D)"), (r"\mathrm{odd}", "odd"), ("A", r"\text{A}"),
    # Tuples, intervals, sets, matrices.
    ("(1, 2)", "(1,2)"), (r"\left(1,2\right)", "(1,2)"), (r"( 3, \frac{\pi}{2} )", r"(3,\frac{\pi}{2})"),
    (r"\left[ 0, \infty \right)", r"[0,\infty)"), ("(0.5, 2)", r"(\frac12,2)"), (r"(-\infty, 3]", r"\left(-\infty,3\right]"),
    (r"\{1, 2, 3\}", r"\{1,2,3\}"), (r"\left\{1,2\right\}", r"\{1, 2\}"), ("1, 2, 3", "1,2,3"), (r"(2,\,3)", "(2,3)"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\begin{pmatrix} -1/3 \\ 2 \end{pmatrix}", r"\begin{pmatrix} -\frac{1}{3} \\ 2 \end{pmatrix}"),
    (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    (r"(-\infty, 2)\cup(3, \infty)", r"(-\infty,2) \cup (3,+\infty)"), (r"[1/2, 1]", r"\left[\frac{1}{2},1\right]"),
    # Equations, ends, layout.
    ("x=5", "5"), ("x = 5", "5"), (r"k=\frac{1}{2}", "0.5"), (r"x \in [1,2]", "[1,2]"), ("5.", "5"), (r"\text{Evelyn}.", "Evelyn"),
    ("$5$", "5"), (r"\(5\)", "5"), (r"\displaystyle 5", "5"), (r"2\pi r", r"2 \pi r"), (r"x \leq 3", r"x \le 3"), ("π", r"\pi"),
    (r"2\cdot 3", r"2 \times 3"), ("{5}", "5"), (r"p^2-q^2", r"p^{2} - q^{2}"), ("x\n+1", "x+1"), (r"\,7\,", "7"), ("3:30", "3:30"),
    ("y = 2x + 3", "2x+3"), (r"-\dfrac{5}{3}", r"-5/3"), (r"3\pm2\sqrt{2}", r"3 \pm 2\sqrt2"), (r"11\sqrt{2}", r"11 \sqrt 2"),
]
UNEQUAL = [
    ("1", "2"), ("", ""), ("", "5"), (r"\frac{1}{2}", r"\frac{1}{3}"), ("0.3", r"\frac{1}{3}"), ("0.333", r"\frac{1}{3}"),
    (r"\frac12", r"\frac21"), ("5", "-5"), (r"\sqrt{2}", "2"), (r"\sqrt{8}", r"2\sqrt{2}"), ("1.41", r"\sqrt{2}"), ("2+3", "5"),
    ("(1,2)", "(2,1)"), ("(1,2)", "[1,2]"), ("[1,2)", "[1,2]"), (r"\{1,2\}", r"\{2,1\}"), ("1,2", "12"), ("1,23", "123"),
    ("(1,000)", "1000"), ("0.5", "50"), (r"50\%", "0.5"), ("x", "y"), ("2x", "2"), ("5m", "5"), ("x=5", "x=6"), ("10", "100"),
    ("52_8", "52"), ("2^3", "23"), ("2^{10}", "2^1"), ("B", "C"), ("(B)", "C"), (r"\text{Evelyn}", r"\text{Edward}"),
    (r"x=3 \text{ or } x=5", "3"), (r"\frac{7}{2}", r"3\frac{7}{2}"), (r"(-\infty,3]", r"(-\infty,3)"), ("1/0", "0"),
    (r"\frac{2}{3}x", r"\frac{2}{3}"), (r"\pi r^2", r"\pi r"), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}12\end{pmatrix}"),
    (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("even", "odd"), (r"\infty", r"-\infty"),
    (r"x \le 3", "x < 3"), (r"\sqrt[3]{2}", r"\sqrt{2}"), ("A", "a"), ("AB", "ab"), ("12345678901234567890", "12345678901234567891"),
    (r"\frac{1}{2}", "12"), (r"2\frac{1}{3}", r"\frac{2}{3}"), ("3:30", "3:45"), ("70", "070.5"), (r"1 \pm \sqrt{2}", r"1+\sqrt{2}"),
    (r"3\text{ or }4", "3"), ("f(x)=5", "5"), ("x+y=5", "5"), (r"\log_2 8", "3"), ("1.0001", "1"),
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("math_equivalence")
parser.add_argument("--out", default="tests/golden/math.json")
arguments = parser.parse_args()
spec = importlib.util.spec_from_file_location("math_equivalence", arguments.math_equivalence)
hendrycks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hendrycks)

rows = [
    {"a": a, "b": b, "equal": equal, "hendrycks": hendrycks.is_equiv(a, b)}
    for equal, pairs in ((True, EQUAL), (False, UNEQUAL))
    for a, b in pairs
]
with open(arguments.out, "w", encoding="utf-8") as out:
    out.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
differ = [row for row in rows if row["equal"] != row["hendrycks"]]
print(f"{len(rows)} pairs, of which {len(differ)} differ from Hendrycks:")
for row in differ:
    print(f"  {row['a']!r} {row['b']!r}: {'equal' if row['equal'] else 'unequal'} here")
