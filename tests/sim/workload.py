"""Generated sequences: 1 to 12 steps of every handler that is built, with all a step can declare.

Which handlers, time-outs, retries and guards occur is drawn from the seed; the documents are what a
person could have written, and go through the real parser.
"""

from __future__ import annotations

import json
import random
from typing import Any

Json = Any

PURE = ("noop", "set_state", "sleep", "transform")
EFFECTS = ("charge", "post", "careless", "look_up")
GUARDS = (
    "true",
    "false",
    "data.n > 1",
    "outputs.s0 == null",
    "data.n == 2 || true",
)


def document(rng: random.Random, name: str, *, effects: tuple[str, ...] = EFFECTS) -> str:
    """The text of one sequence."""
    n_steps = rng.choice((1, 1, 2, 3, 3, 4, 6, 8, 12))
    share = rng.choice((0.3, 0.6, 1.0))
    blocks = [_step(rng, n, effects, share) for n in range(n_steps)]
    return json.dumps({"name": name, "version": 1, "blocks": blocks})


def _step(rng: random.Random, n: int, effects: tuple[str, ...], share: float) -> dict[str, Json]:
    step: dict[str, Json] = {"type": "step", "id": f"s{n}"}
    if rng.random() < share:
        step["handler"] = rng.choice(effects)
        step["params"] = {"amount": _amount(rng, n), "url": "https://pay.example/charge"}
        if rng.random() < 0.5:
            step["timeout"] = rng.choice((5, 500, 5_000))
        if rng.random() < 0.6:
            step["retry"] = _retry(rng)
    else:
        handler = rng.choice(PURE)
        step["handler"] = handler
        step["params"] = _pure_params(rng, handler, n)
    if rng.random() < 0.2:
        step["when"] = rng.choice(GUARDS)
    return step


def _amount(rng: random.Random, n: int) -> Json:
    choices: list[Json] = [n, "{{ context.data.n }}", "{{ state.k0 }}"]
    if n:
        choices.append(f"{{{{ outputs.s{rng.randrange(n)}.amount }}}}")
    return rng.choice(choices)


def _retry(rng: random.Random) -> dict[str, Json]:
    return {
        "max_attempts": rng.choice((1, 2, 3)),
        "initial_backoff": rng.choice((0, 100, 10_000)),
        "max_backoff": 60_000,
    }


def _pure_params(rng: random.Random, handler: str, n: int) -> dict[str, Json]:
    if handler == "set_state":
        return {"key": f"k{rng.randrange(2)}", "value": n}
    if handler == "sleep":
        return {"duration_ms": rng.choice((0, 10, 90_000))}
    if handler == "transform":
        return {"amount": "{{ context.data.n }}"}
    return {}
