"""Every metric that the program registers, each either held against what a client counted, with the test that does it, or with the reason why no
client can count it. test_every_metric.py refuses one that is missing here, that no source registers, or that its test does not name.

    names_in_source(); exported(text_of_a_scrape); faults(names)
"""
import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SOURCES = TESTS.parent / "src"

_EVERY, _MEASURED = "training/test_every_metric.py", "training/test_measured.py"
_ROWS, _FLEET, _DEPLOYED = "training/test_kept_forwards.py::test_what_is_read_is_what_would_be_computed", "api/test_fleet.py", "api/test_deployments.py"

# Test -> the metrics that it compares with what its client counted, or with what the system or the command line says of the same thing.
_HELD = {
    f"{_EVERY}::test_the_engine_alone_with_one_answer": [
        "engine_forwards_total", "engine_rows_total", "engine_prefill_tokens_total", "engine_decode_tokens_total", "engine_chunks_total", "engine_cache_hit_tokens_total",
        "engine_live_rows_total", "engine_rollout_rows_total", "engine_largest_batch", "engine_pairs_visible_total", "engine_pairs_skipped_total", "engine_expert_rows_total",
        "class_sequences_total", "class_tokens_total", "class_first_token_seconds", "class_token_gap_seconds", "device_pieces_total", "device_seconds_total",
        "device_longest_piece_seconds", "device_longest_stretch_seconds", "cache_pages_used"],
    f"{_EVERY}::test_many_answers_at_a_time": ["engine_mixed_batches_total", "open_sequences", "sequences_running", "sequences_waiting", "key_sequences_waiting"],
    f"{_EVERY}::test_guesses": [
        "engine_draft_rows_total", "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total"],
    f"{_EVERY}::test_a_held_answer": [
        "held_streams", "sequences_refused_total", "stream_holds_total", "stream_rollbacks_total", "stream_put_in_tokens_total", "deployment_open_sequences", "http_open_requests"],
    f"{_EVERY}::test_bytes_connections_and_requests": [
        "http_requests_total", "http_request_seconds", "http_first_byte_seconds", "http_connections", "http_connections_total", "http_sent_bytes_total",
        "http_received_bytes_total"],
    f"{_EVERY}::test_who_leaves_and_who_does_not_read": ["http_clients_left_total", "http_streams_dropped_total"],
    f"{_EVERY}::test_an_answer_that_fails": ["engine_failed_requests_total"],
    f"{_EVERY}::test_what_the_command_line_and_the_system_say": [
        "build_info", "weights_version", "open_sequences_limit", "device_share_percent", "cache_pages", "memory_bytes", "memory_limit_bytes", "memory_claimed_bytes",
        "process_cpu_seconds_total", "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"],
    f"{_EVERY}::test_limits_of_a_key": ["rate_left"],
    f"{_EVERY}::test_numbers_that_come_out_of_order": ["training_early_total", "training_undone_total", "training_first_result_seconds"],
    f"{_EVERY}::test_batches_of_several_models_in_one_pass": ["training_shared_passes_total", "training_shared_pieces_total"],
    "training/test_ranks.py::test_what_each_rank_did": [f"rank_{what}_total" for what in ("computed_seconds", "waited_seconds", "sent_seconds", "received_bytes")],
    f"{_MEASURED}::test_metrics_are_what_clients_counted": [
        "prompt_tokens_total", "generated_tokens_total", "sequences_total", "sequences_finished_total", "sequence_queue_seconds", "time_to_first_token_seconds",
        "sequence_seconds", "engine_sampled_tokens_total", "training_operations_total", "training_operations_failed_total", "training_tokens_total",
        "deployment_sequences_total", "deployment_generated_tokens_total"],
    _ROWS: [f"training_rows_{what}_total" for what in ("kept", "read", "beside", "compared")],
    "training/test_kept_forwards.py::test_what_finds_no_memory_is_computed": ["training_rows_dropped_total", "training_rows_bytes"],
    "training/test_custom_losses.py::test_the_second_call_of_a_clients_loss_reuses_the_forward": [
        f"training_forwards_{what}" for what in ("kept_total", "reused_total", "dropped_total", "kept_bytes")],
    "training/test_sessions.py::test_more_models_than_memory_has_room_for": [
        "training_models_rested_total", "training_gradients_saved_total", "training_gradients_read_total", "training_models_waiting"],
    "training/test_hostile_senders.py::test_a_body_that_is_too_much_says_so_and_how_much_is_allowed": ["body_bytes", "body_peak_bytes", "bodies_refused_total"],
    "api/test_operations.py::test_a_stopping_server_finishes_what_runs": ["http_draining"],
    f"{_DEPLOYED}::test_models_change_while_it_runs": ["deployments_leaving"],
    f"{_DEPLOYED}::test_ten_models_of_which_three_are_in_memory": ["deployment_asleep", "deployment_loads_total", "deployment_memory_bytes"],
    f"{_DEPLOYED}::test_one_that_follows_its_channel_takes_each_snapshot": ["deployment_shared_bytes"],
    f"{_FLEET}::test_three_replicas_follow_and_one_is_killed": [
        f"sync_{what}" for what in ("stage", "current_sequence", "target_sequence", "swaps_total", "errors_total", "downloaded_bytes_total", "full_bytes_total", "swap_seconds",
                                    "ready_seconds")],
    f"{_FLEET}::test_streams_go_through_swaps": ["engine_mixed_version_tokens_total"],
    "api/test_service_tier.py::test_rollouts_are_held_back_beside_live_answers": ["engine_held_back_forwards_total"],
}  # fmt: skip


def full_name(short):
    return short if short.startswith("process_") else "lockstep_" + short


COUNTED = {full_name(name): test for test, names in _HELD.items() for name in names}
# Why no client can count it, and which test sees that it counts at all.
NOT_COUNTABLE = {
    "lockstep_engine_preemptions_total": "which sequences were put back for others no answer tells, and no bit of one depends on it; that it counts: api/test_concurrency.py, and "
                                         "engine/scheduler_test.cpp, which knows the plan",
    "lockstep_engine_evictions_total": "which cached pages went for others no answer tells, only what is still there (cached_tokens); that it counts: api/test_concurrency.py, and "
                                       "engine/engine_test.cpp",
    "lockstep_engine_following_forwards_total": "which forwards began beside one in a later stage of a pipeline no answer tells, and no bit of one depends on it; that it counts: "
                                                "api/test_stages.py, and engine/following_plans_test.cpp",
    "lockstep_device_waiting_seconds": "how long a key has had no turn stands nowhere in an answer, which ends when it has had some; that it tells who waits: serving/executor_test.cpp",
}  # fmt: skip

_REGISTERED = re.compile(r'\b(?:family|one|each)\(\s*(?:text,\s*)?"((?:lockstep|process)_\w+)"')


def names_in_source():
    """Every metric that a line of src/ registers, tests left out."""
    names = set()
    for file in sorted(SOURCES.rglob("*")):
        if file.suffix not in (".cpp", ".h") or file.stem.endswith("_test") or file.name == "prometheus.h":  # whose line of use is no metric
            continue
        text = file.read_text()
        names.update(_REGISTERED.findall(text))
        for form, table in re.findall(r'fmt::format\("((?:lockstep|process)_\w*\{\}\w*)", (\w+)\)', text):
            assert table == "name" and "counters[] = {" in text, f"{file}: a metric's name is made in a way that this does not read"
            rows = text[text.index("counters[] = {") :]
            names.update(form.replace("{}", row) for row in re.findall(r'\{"(\w+)", ', rows[: rows.index("};")]))
    return names


def exported(scrape):
    """Every metric of the text of a scrape."""
    return set(re.findall(r"^# TYPE (\S+) ", scrape, re.M))


@functools.cache
def _words_of(test):
    """The words of a test's source; None if there is none."""
    file, name = test.split("::")
    text = (TESTS / file).read_text()
    source = next((ast.get_source_segment(text, node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    return source and set(re.findall(r"\w+", source))


def faults(registered, scraped, elsewhere=("lockstep_sync_", "lockstep_rank_")):
    """What is wrong between this list, what the sources register and what a server that has nearly everything exports, as sentences. `elsewhere`: what such
    a server does not have, since it follows no channel and has one rank."""
    found, listed = [], set(COUNTED) | set(NOT_COUNTABLE)
    found += [f"{name} is registered and not listed: a test should hold it against what a client counts, or say why none can" for name in sorted((registered | scraped) - listed)]
    found += [f"{name} is listed and nothing registers it" for name in sorted(listed - registered)]
    found += [f"{name} is listed and not exported" for name in sorted(listed - scraped) if not name.startswith(elsewhere)]
    found += [f"{name} is listed twice" for name in sorted(set(COUNTED) & set(NOT_COUNTABLE))]
    for name, test in COUNTED.items():
        words = _words_of(test)
        if words is None:
            found.append(f"{name}: there is no test {test}")
        elif not words & {name, name + "_count", name + "_sum"}:
            found.append(f"{name}: {test} does not name it")
    return found
