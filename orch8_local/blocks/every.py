"""Imports every block type, so that each registers its shape and its behaviour."""

from orch8_local.blocks import (
    a_b_split,
    cancellation_scope,
    for_each,
    loop,
    parallel,
    race,
    router,
    saga,
    step,
    sub_sequence,
    try_catch,
)

MODULES = (
    step,
    parallel,
    race,
    loop,
    for_each,
    router,
    try_catch,
    sub_sequence,
    a_b_split,
    cancellation_scope,
    saga,
)
