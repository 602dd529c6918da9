"""What a contributor adds to the fleet: a question, an exporter, a file for a cluster."""

from __future__ import annotations

from tests.support.additions import Addition, Patch

QUESTION = Addition(
    "a question to a fleet",
    1,
    (
        Patch(
            "gputop/features/fleet/questions.py",
            """    FleetQuestion(
        "added", "throughput", "Added", "ratio", lambda q: f"{q.gpu('engine')} / {q.mean('util')}",
        "What a test adds, as a share of what was there.", "Nothing to do.",
        alert=AlertRule("GpuAdded", " > 0.5", "1m", "info", Planted(({"util": 0.5, "engine": (0.3, 0.2)},))),
    ),
""",
            after="THROUGHPUT_QUERIES = (\n",
        ),
    ),
    """
def test_a_question_is_asked_under_every_names_alerted_on_and_told_in_the_help() -> None:
    from gputop.features.fleet.promql import ALL_NAMES, rule_scope
    from gputop.features.fleet.questions import library
    from gputop.features.fleet.rules import rules_yaml, unit_tests_yaml

    for names in ALL_NAMES:
        asked = library()["added"].promql(rule_scope(names, 'cluster="a"'))
        assert asked is not None and asked.count('cluster="a"') >= 2
        assert "alert: GpuAdded" in rules_yaml(names) and "GpuAdded is silent" in unit_tests_yaml(names, "r.yml")
    assert "`added`" in page_text("fleet")
    assert main(["fleet", "queries", "added"]) == 0
""",
)

EXPORTER = Addition(
    "an exporter that a fleet may have",
    1,
    (
        Patch(
            "gputop/features/fleet/exporter_names.py",
            """    Dialect(
        "added", "an exporter that a test adds",
        _signals(
            util_pct=("added_util_ratio", 100.0), power_w=("added_milliwatts", 1e-3), mem_used_bytes=("added_mib", MIB)
        ),
        ("index",), ("uuid",), ("name",),
    ),
""",
            after="""        ("index", "gpu_index"), ("uuid",), ("gpu", "gpu_name"),
    ),
""",
        ),
    ),
    """
def test_an_exporter_is_looked_for_and_asked_in_its_own_names_and_units() -> None:
    from gputop.features.fleet import plan
    from gputop.features.fleet.decode_answers import keys_by_dialect

    assert "added_util_ratio" in plan.names_selector("") and "added_util_ratio" in plan.samples("")
    signals = keys_by_dialect(["added_util_ratio", "added_milliwatts"])
    known = plan.FleetSchema(signals, {"added": ("instance", "index")})
    assert signals == {"added": {"util_pct", "power_w"}} and known.only == "added"
    assert plan.metric(known, "power_w", 'a="b"') == 'max by (instance, index) (added_milliwatts{a="b"})'
    assert plan.quiet(known, "").endswith("< 0.05)"), "5 % as a ratio"
""",
)

CLUSTER_FILE = Addition(
    "a file for a cluster",
    2,
    (
        Patch(
            "gputop/features/fleet/files/util.conf",
            "# What a test adds for a cluster: which metric is utilisation there.\n# Nobody reads it.\nutil = @util\n",
        ),
        Patch(
            "gputop/features/fleet/deploy.py",
            """    conf, util = "util.conf", DIALECTS[names].signals["util_pct"].name
    text_of_path[conf] = text_of_path[conf].replace("@util", util)
""",
            after='replace(f"image: {LOCAL_IMAGE}", f"image: {image}")\n',
        ),
    ),
    """
def test_a_file_for_a_cluster_is_written_under_the_names_of_its_exporter(tmp_path: Path) -> None:
    for names, util in (("gputop", "gputop_gpu_utilization_ratio"), ("4.9", "DCGM_FI_DEV_GPU_UTIL")):
        assert main(["fleet", "deploy", str(tmp_path / names), "--names", names]) == 0
        assert f"util = {util}" in (tmp_path / names / "util.conf").read_text()
""",
)

FLEET_ADDITIONS = (QUESTION, EXPORTER, CLUSTER_FILE)
