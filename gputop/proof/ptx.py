"""The kernels, as PTX text: for sm_50 and PTX 6.0, so that every driver since 2017 compiles it for its own GPU."""

from __future__ import annotations

SPIN, TINY = b"spin", b"tiny"
KERNELS = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 nanoseconds, .param .u64 most_cycles)
{
    .reg .pred %over;
    .reg .u64 %begin, %first, %now, %spent, %length, %most;
    ld.param.u64 %length, [nanoseconds];
    ld.param.u64 %most, [most_cycles];
    mov.u64 %begin, %globaltimer;
    mov.u64 %first, %clock64;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begin;
    setp.ge.u64 %over, %spent, %length;
    @%over bra DONE;
    mov.u64 %now, %clock64;
    sub.u64 %spent, %now, %first;
    setp.lt.u64 %over, %spent, %most;
    @%over bra AGAIN;
DONE:
    ret;
}

.visible .entry tiny()
{
    ret;
}
\0"""
"""``spin`` keeps each of its blocks busy for a time by two clocks: whichever is over first ends it, so that no launch
outlasts its time even where one of them stands still."""
