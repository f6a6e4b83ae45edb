#!/usr/bin/env python3
"""Simulates how often verdicts between policies err, and how many true differences they find: of the test of reports, and of the former one.

    python3 .ci/checks/verdicts.py                # a minute with numpy, ten without
    python3 .ci/checks/verdicts.py --tables 200   # fewer tables

A table is of some books and five policies at one size, which are ten pairs. What a policy costs a book is log-normal, with factors as 12 PG-19
books had them under SmolLM2-135M (tests/it/statistics.rs). Either all policies are equal, and any verdict is an error; or the last one costs a
fifth more, and four of the ten pairs differ. Beside books as these: one book of the twelve where costs scatter ten times as much; and
books whose weights differ up to 16-fold.

The former test flips the signs of what each book adds to the pooled difference. That of reports flips the signs of the ranks of the
books' own differences, and asks the pair's interval, too. Written without a line of the program; tests/it/statistics.rs simulates
the program itself.
"""
import argparse
import math
import random

try:
    import numpy as np
except ImportError:
    np = None

POLICIES, COST, MORE = 5, 0.17, 1.2
# Standard deviations of logarithms: of a book, of a policy in a book.
OF_BOOK, OF_POLICY = 0.46, math.hypot(0.09, 0.09)
# Books, how much more costs scatter in one of them, and how much weights differ.
SETTINGS = {f"{books} books": (books, 1, 1) for books in (6, 8, 12, 24, 100)}
SETTINGS |= {"12, one of them contaminated": (12, 10, 1), "12, whose weights differ 16-fold": (12, 1, 16)}
LEVEL, LEFT_OUT = 0.05, 0.02
# Of more books than this 4,096 subsets are drawn, as the program does.
ENUMERATED, DRAWN = 12, {}


def table(rng, books, contamination, ratio, more):
    """Costs by policy and book, and the weights of the books."""
    odd = rng.randrange(books)
    weights = [ratio ** rng.random() for _ in range(books)]
    levels = [math.exp(rng.gauss(0, OF_BOOK)) for _ in range(books)]
    costs = []
    for policy in range(POLICIES):
        own = [math.exp(rng.gauss(0, OF_POLICY)) for _ in range(books)]
        # The mean stays, and policies that are equal stay exchangeable.
        own = [1 + (factor - 1) * (contamination if book == odd else 1) for book, factor in enumerate(own)]
        cost = COST * (more if policy == POLICIES - 1 else 1)
        costs.append([cost * level * factor for level, factor in zip(levels, own)])
    return costs, weights


def subset_sums(parts):
    """The sum over every subset, or over drawn ones, in one order; the first of every subset is empty."""
    if len(parts) > ENUMERATED:
        if len(parts) not in DRAWN:
            rng = random.Random(len(parts))
            DRAWN[len(parts)] = [[rng.getrandbits(1) for _ in parts] for _ in range(1 << ENUMERATED)]
            if np is not None:
                DRAWN[len(parts)] = np.array(DRAWN[len(parts)], dtype=float)
        members = DRAWN[len(parts)]
        return [sum(part for part, is_in in zip(parts, of) if is_in) for of in members] if np is None else members @ np.array(parts)
    sums = [0.0] if np is None else np.zeros(1)
    for part in parts:
        more = [below + part for below in sums] if np is None else sums + part
        sums = sums + more if np is None else np.concatenate([sums, more])
    return sums


def signed_ranks(differences):
    """No two of these differences have one size."""
    order = sorted(range(len(differences)), key=lambda at: abs(differences[at]))
    ranks = [0.0] * len(differences)
    for rank, at in enumerate(order):
        ranks[at] = math.copysign(rank + 1, differences[at])
    return ranks


def p_adjusted(family):
    """Of each pair, how many patterns of signs have a |t| in any pair that is as large as its own."""
    flipped, measured, drawn = [], [], len(family[0]) > ENUMERATED
    for parts in family:
        scale, total = math.sqrt(math.fsum(part * part for part in parts)), math.fsum(parts)
        sums = subset_sums(parts)
        flipped.append([abs(2 * kept - total) / scale for kept in sums] if np is None else np.abs(2 * sums - total) / scale)
        measured.append(abs(total) / scale - 1e-9)
    if np is None:
        largest = [max(of_pattern) for of_pattern in zip(*flipped)]
        reached = [sum(t >= own for t in largest) for own in measured]
    else:
        largest = np.max(flipped, axis=0)
        reached = [int((largest >= own).sum()) for own in measured]
    # Among drawn patterns the measured one is one more.
    return [(count + drawn) / (len(largest) + drawn) for count in reached]


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
    """By pair, as (former, of reports): 1 or -1 for a verdict, 0 where the two are not told apart."""
    pairs = [(one, other) for one in range(POLICIES) for other in range(one)]
    books = [[a - b for a, b in zip(costs[one], costs[other])] for one, other in pairs]
    # What a book adds to the pooled difference; the middle of the two numbers cancels out where both weigh alike.
    adds = [[difference * weight for difference, weight in zip(of_pair, weights)] for of_pair in books]
    ranks = [signed_ranks(of_pair) for of_pair in books]
    found = {}
    for pair, of_pair, added, ranked, former, now in zip(pairs, books, adds, ranks, p_adjusted(adds), p_adjusted(ranks)):
        low, high = interval(of_pair, weights)
        side = (low > 0) - (high < 0)
        is_now = now <= LEVEL and side * sum(ranked) > 0
        found[pair] = (math.copysign(former <= LEVEL, sum(added)), side * is_now)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000, help="simulated tables of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print("| books | tables of equal policies with a verdict: sums | ranks | differences of a fifth found: sums | ranks |\n|---|---:|---:|---:|---:|")
    wrong = []
    for name, setting in SETTINGS.items():
        errors, power = [0, 0], [0, 0]
        for _ in range(arguments.tables):
            equal = verdicts(*table(rng, *setting, 1.0)).values()
            unequal = verdicts(*table(rng, *setting, MORE))
            for test in (0, 1):
                errors[test] += any(of_pair[test] for of_pair in equal)
                power[test] += sum(of_pair[test] > 0 for (one, _), of_pair in unequal.items() if one == POLICIES - 1)
        shares = [100 * count / arguments.tables for count in errors] + [100 * count / (POLICIES - 1) / arguments.tables for count in power]
        print(f"| {name} | " + " | ".join(f"{share:.1f} %" for share in shares) + " |", flush=True)
        allowed = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / arguments.tables)
        if errors[1] > allowed * arguments.tables:
            wrong.append(f"{name}: {errors[1]} of {arguments.tables} tables of equal policies have a verdict")
        # With few books of one kind both find the same.
        if setting[1:] != (1, 1) and power[1] <= power[0]:
            wrong.append(f"{name}: ranks find no more than sums, {power}")
    raise SystemExit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
