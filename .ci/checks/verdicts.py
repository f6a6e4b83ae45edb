#!/usr/bin/env python3
"""Simulates how often verdicts between policies err, and how many true differences they find, by three tests.

    python3 .ci/checks/verdicts.py                # minutes with numpy, an hour without
    python3 .ci/checks/verdicts.py --tables 200   # fewer tables

A table is of some books and five policies at one size, which are ten pairs. What a policy costs a book is log-normal, with factors as 12 PG-19
books had them under SmolLM2-135M (tests/it/statistics.rs). Either all policies are equal, and any verdict is an error; or the last one costs a
fifth more, and four of the ten pairs differ. Beside books as these: one book of the twelve where costs scatter ten times as much; books
whose weights differ up to 16-fold; and twenty policies, of which the last costs half more, which all books agree on.

All tests flip the signs of whole books, for all pairs together: `sums` of what each book adds to the pooled difference, which is the former
test; `ranks` of the signed ranks of the books' own differences; `report` of these differences, limited to 2.5 times their median size, and it
asks the pair's interval, too. Written without a line of the program; tests/it/statistics.rs simulates the program itself.
"""
import argparse
import math
import random

try:
    import numpy as np
except ImportError:
    np = None

COST = 0.17
# Standard deviations of logarithms: of a book, of a policy in a book.
OF_BOOK, OF_POLICY = 0.46, math.hypot(0.09, 0.09)
# Books, policies, how much more the last one costs, how much more costs scatter in one book, and how much weights differ.
SETTINGS = {f"{books} books": (books, 5, 1.2, 1, 1) for books in (6, 8, 12, 24, 100)}
SETTINGS |= {"12, one of them contaminated": (12, 5, 1.2, 10, 1), "12, whose weights differ 16-fold": (12, 5, 1.2, 1, 16)}
SETTINGS |= {"12, 20 policies, the last costs half more": (12, 20, 1.5, 1, 1)}
LEVEL, LEFT_OUT = 0.05, 0.02
# Of more books than this 4,096 subsets are drawn, as the program does.
ENUMERATED, SUBSETS = 12, {}


def table(rng, books, policies, more, contamination, ratio):
    """Costs by policy and book, and the weights of the books."""
    odd = rng.randrange(books)
    weights = [ratio ** rng.random() for _ in range(books)]
    levels = [math.exp(rng.gauss(0, OF_BOOK)) for _ in range(books)]
    costs = []
    for policy in range(policies):
        own = [math.exp(rng.gauss(0, OF_POLICY)) for _ in range(books)]
        # The mean stays, and policies that are equal stay exchangeable.
        own = [1 + (factor - 1) * (contamination if book == odd else 1) for book, factor in enumerate(own)]
        cost = COST * (more if policy == policies - 1 else 1)
        costs.append([cost * level * factor for level, factor in zip(levels, own)])
    return costs, weights


def members(books):
    """Which books are in each subset; of up to twelve books every subset, the first of which is empty."""
    if books not in SUBSETS:
        rng = random.Random(books)
        every = books <= ENUMERATED
        subset = (lambda at: [at >> book & 1 for book in range(books)]) if every else (lambda _: [rng.getrandbits(1) for _ in range(books)])
        all_of_them = [subset(at) for at in range(1 << min(books, ENUMERATED))]
        SUBSETS[books] = all_of_them if np is None else np.array(all_of_them, dtype=float)
    return SUBSETS[books]


def subset_sums(parts):
    """The sum over each subset."""
    if np is not None:
        return members(len(parts)) @ np.array(parts)
    if len(parts) > ENUMERATED:
        return [sum(part for part, is_in in zip(parts, subset) if is_in) for subset in members(len(parts))]
    sums = [0.0]
    for part in parts:
        sums += [below + part for below in sums]
    return sums


def signed_ranks(differences):
    """No two of these differences have one size."""
    order = sorted(range(len(differences)), key=lambda at: abs(differences[at]))
    ranks = [0.0] * len(differences)
    for rank, at in enumerate(order):
        ranks[at] = math.copysign(rank + 1, differences[at])
    return ranks


def winsorised(differences):
    """Limited to 2.5 times the median size."""
    sizes = sorted(map(abs, differences))
    most = 2.5 * (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    return [max(-most, min(most, difference)) for difference in differences]


def p_adjusted(family):
    """Of each pair, how many patterns of signs have a |t| in any pair that is as large as its own."""
    # Of unit length, so that a sum is a t. Among drawn patterns the measured one is one more.
    family, drawn = [[part / math.hypot(*parts) for part in parts] for parts in family], len(family[0]) > ENUMERATED
    measured = [abs(math.fsum(parts)) - 1e-9 for parts in family]
    if np is None:
        flipped = ([abs(2 * kept - sum(parts)) for kept in subset_sums(parts)] for parts in family)
        largest = [max(of_pattern) for of_pattern in zip(*flipped)]
        reached = [sum(t >= own for t in largest) for own in measured]
    else:
        largest = np.sort(np.abs((2 * members(len(family[0])) - 1) @ np.array(family).T).max(axis=1))
        reached = len(largest) - np.searchsorted(largest, measured)
    return [(int(count) + drawn) / (len(largest) + drawn) for count in reached]


def interval(differences, weights):
    """Of the pooled difference: without 2 % of the subsets' values at either end."""
    first = len(weights) <= ENUMERATED
    values, weighed = (subset_sums(parts)[first:] for parts in ([d * w for d, w in zip(differences, weights)], weights))
    pooled = sorted(a / b for a, b in zip(values, weighed)) if np is None else np.sort(values / weighed)
    place = max(LEFT_OUT * (len(pooled) + 1), 1) - 1
    below, share = int(place), place % 1
    low = pooled[below] + share * (pooled[below + 1] - pooled[below])
    high = pooled[-1 - below] - share * (pooled[-1 - below] - pooled[-2 - below])
    low, high = (low if pooled[below] > 0 else min(low, 0)), (high if pooled[-1 - below] < 0 else max(high, 0))
    return float(low), float(high)


def verdicts(costs, weights):
    """By pair, of each test: 1 or -1 for a verdict, 0 where the two are not told apart."""
    pairs = [(one, other) for one in range(len(costs)) for other in range(one)]
    books = [[a - b for a, b in zip(costs[one], costs[other])] for one, other in pairs]
    # What a book adds to the pooled difference; the middle of the two numbers cancels out where both weigh alike.
    sums = [[difference * weight for difference, weight in zip(of_pair, weights)] for of_pair in books]
    families = [sums, list(map(signed_ranks, books)), list(map(winsorised, books))]
    found = {pair: [] for pair in pairs}
    for family in families:
        for pair, parts, p in zip(pairs, family, p_adjusted(family)):
            found[pair].append(math.copysign(p <= LEVEL, sum(parts)))
    for pair, of_pair in zip(pairs, books):
        low, high = interval(of_pair, weights)
        # The report's verdict is on the side of the pair's own interval, or none.
        found[pair][-1] *= found[pair][-1] * ((low > 0) - (high < 0)) > 0
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000, help="simulated tables of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    tests = ("sums", "ranks", "report")
    print("| books | error: " + " | ".join(tests) + " | found: " + " | ".join(tests) + " |\n|---|" + "---:|" * 6)
    wrong = []
    for name, setting in SETTINGS.items():
        books, policies, more, *others = setting
        errors, power = [0] * 3, [0] * 3
        for _ in range(arguments.tables):
            equal = verdicts(*table(rng, books, policies, 1.0, *others)).values()
            unequal = verdicts(*table(rng, *setting))
            for test in range(3):
                errors[test] += any(of_pair[test] for of_pair in equal)
                power[test] += sum(of_pair[test] > 0 for (one, _), of_pair in unequal.items() if one == policies - 1)
        shares = [100 * count / arguments.tables for count in errors] + [100 * count / (policies - 1) / arguments.tables for count in power]
        print(f"| {name} | " + " | ".join(f"{share:.1f} %" for share in shares) + " |", flush=True)
        allowed = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / arguments.tables)
        if errors[-1] > allowed * arguments.tables:
            wrong.append(f"{name}: {errors[-1]} of {arguments.tables} tables of equal policies have a verdict")
        # Where books are alike, both find about the same.
        if others != [1, 1] and power[-1] < power[0]:
            wrong.append(f"{name}: the report finds less than sums, {power}")
    raise SystemExit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
