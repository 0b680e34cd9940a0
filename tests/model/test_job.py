"""Jobs as values: which answers are not sent."""

from palaver.model.job import FiredJob


def test_silent_answers_in_the_forms_that_models_give() -> None:
    job = FiredJob(number=1, name="news")
    for answer in ("", "[SILENT]", " **[silent]** nothing new", "⟦SILENT⟧"):
        assert job.is_silent(answer), answer
        assert not FiredJob(number=1, name="news", skips_silent=False).is_silent(answer)
    assert not job.is_silent("The log says [SILENT].")
