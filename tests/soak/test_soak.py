"""A few seconds of the soak, on SQLite; `make soak` is the long one. And it sees what grows."""

from tests.soak.__main__ import parse, run
from tests.soak.measure import Generation, Latency, Sample, lines, whole

MINUTES = 1 / 15


async def test_nothing_is_lost_or_doubled_while_everything_goes_wrong() -> None:
    (verdict,) = await run(parse(["--minutes", str(MINUTES), "--seed", "1", "sqlite"]))
    assert verdict.complaints == []
    assert " lost=0 doubled=0 out_of_order=0 leaked=0 " in verdict.summary


def generation(*, growth: float) -> Generation:
    """Ten minutes of a gateway, whose memory grows by so much in all."""
    samples = [
        Sample(at=float(second), memory=int(100e6 * (1 + growth * second / 600)), descriptors=40, threads=5)
        for second in range(600)
    ]
    return Generation(name="w1", began=0.0, ended=600.0, samples=samples)


def test_what_grows_is_not_flat() -> None:
    waited = [Latency(at=float(second), seconds=0.02) for second in range(600)]
    (line,), is_flat = lines([generation(growth=0.0)], waited)
    figures = "memory=100/100MB(1.00) descriptors=40/40(1.00) threads=5/5(1.00) latency=20/20ms(1.00) load=0/0(1.00)"
    assert line == f"generation=w1 seconds=600 {figures}"
    assert is_flat
    (line,), is_flat = lines([generation(growth=1.0)], waited)
    assert "memory=117/188MB(1.61, grows)" in line
    assert not is_flat
    (line,), _ = lines([whole("w", [generation(growth=0.0), generation(growth=1.0)])], waited)
    assert line.startswith("generation=w seconds=600 memory=100/")


def test_latency_is_judged_at_the_pace_of_the_machine() -> None:
    def slower(*, by: float, seconds: float) -> list[Latency]:
        return [Latency(at=float(second), seconds=seconds * (1 + by * second / 600)) for second in range(600)]

    (line,), is_flat = lines([generation(growth=0.0)], slower(by=9, seconds=1.0), slower(by=9, seconds=0.01))
    assert is_flat, line
    (line,), is_flat = lines([generation(growth=0.0)], slower(by=9, seconds=1.0), slower(by=0, seconds=0.01))
    assert not is_flat, line
    assert "latency=2118/8868ms(4.19, grows) control=10/10ms(1.00)" in line


def test_a_short_life_says_nothing_about_a_trend() -> None:
    short = generation(growth=9.0)
    short.ended, short.samples = 60.0, short.samples[:60]
    _, is_flat = lines([short], [])
    assert is_flat
