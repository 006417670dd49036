"""Compiles (syntax only) the lines of use in headers' first comments: `//   CODE` before #pragma once, with three blanks.

Each stands in a function of its own, whose parameters are what the line takes for granted: GIVEN and usage_names.py list them, and OF_ANY_TYPE
names that may be of any type. `...` stands for anything and is left out. Of a header in no list, about three in ten of those that have such lines,
the number of arguments alone is compared, below: some of their lines are formulas, some take a whole program for granted, and some were never listed.
"""
import re
import shutil
import subprocess

from harness import ROOT, TMP, Skip, check
from usage_names import NAMES

LEARNS = "const std::vector<TrainSequence>& data, const LossOptions& loss, const AdamParameters& adam"
GIVEN = {
    "base/bounded_json.h": "const std::string& body",
    "base/entropy.h": "std::optional<std::uint64_t> given",
    "base/error.h": "double t",
    "base/fair_shares.h": "double now, double seconds",
    "base/file_pieces.h": "Sha256& hash",
    "base/folder_lock.h": "const std::filesystem::path& runs",
    "base/log.h": "const std::string& path",
    "base/signals.h": "void (*step)()",
    "base/thread_pool.h": "ThreadPool& pool, std::int64_t rows",
    "benchmark/attention.h": "",
    "benchmark/counters.h": "const OpenedModel& opened",
    "benchmark/kernel_groups.h": "",
    "benchmark/model_benchmark.h": "",
    "benchmark/roofline.h": "",
    "benchmark/scoring.h": "",
    "base/byte_file.h": "char* buffer",
    "base/folder_files.h": "std::string text",
    "checkpoint/gguf_config.h": "const GgufFile& file",
    "checkpoint/gguf_file.h": "std::vector<float>& values",
    "checkpoint/gguf_model.h": "const std::filesystem::path& path",
    "checkpoint/gguf_tokenizer.h": "const GgufFile& file",
    "checkpoint/gguf_types.h": "const std::uint8_t* bytes, float* values, std::int64_t blocks",
    "checkpoint/json_file.h": "const std::filesystem::path& folder",
    "checkpoint/model_files.h": "const std::filesystem::path& folder, const std::string& name, std::vector<float>& values",
    "checkpoint/model_folder.h": "",
    "checkpoint/safetensors.h": "std::vector<float>& values",
    "checkpoint/safetensors_header.h": "const std::string& text",
    "cli/command_line.h": "const std::vector<std::string>& arguments, const OptionRows& rows",
    "cli/option_help.h": "const CommandAbout& about, const OptionRows& rows",
    "cli/option_rows.h": "OptionRows& rows, const std::string& text",
    "cli/options.h": "std::int64_t max_tokens, std::string prompt, const std::vector<std::string>& arguments",
    "engine/engine.h": "Runtime& runtime, std::shared_ptr<const WeightSet> weights",
    "kernels/backend.h": "const View& y, const View& a, const View& b",
    "kernels/kernel_work.h": "const View& y, const View& x, const PackedWeight& w",
    "model/config_keys.h": "const Json& json",
    "model/config_reader.h": "const Json& json",
    "model/context.h": "Context& ctx, const Tensor& x, const Tensor& a, const Tensor& b, std::int64_t n",
    "model/model.h": "const Json& config_json",
    "model/operations/row_tiles.h": "Context& ctx, const Tensor& h, const FeedForwardBlock& mlp",
    "model/operations/segment.h": "Context& ctx, Tensor x, std::size_t begin, std::size_t end, std::int64_t top_k, Tensor (*layer)(Context&, const Tensor&, std::size_t, Selection&)",
    "model/runtime.h": "const BackendOptions& backend_options, const Json& config, std::int64_t max_positions",
    "numerics/profile.h": "",
    "numerics/flop.h": "",
    "observe/bounded_log.h": "const std::filesystem::path& run, std::int64_t checkpoint_step",
    "observe/metrics_log.h": "const std::filesystem::path& run, std::int64_t checkpoint_step",
    "observe/progress.h": "std::int64_t steps, std::int64_t tokens_of_step",
    "observe/prometheus.h": "std::string& body",
    "observe/trace.h": "void (*work)()",
    "parallel/layout.h": "",
    "parallel/thread_ranks.h": "const RankLayout& layout",
    "rl/conversation_environment.h": "",
    "rl/countdown.h": "std::uint64_t seed, std::uint64_t index",
    "rl/environment.h": "std::uint64_t seed, const std::string& answer",
    "rl/advantages/advantages.h": "",
    "rl/algorithms/algorithms.h": "RlSettings& settings, const std::set<std::string_view>& options",
    "rl/dozen.h": "std::uint64_t seed, std::uint64_t index",
    "rl/lockbox.h": "std::uint64_t seed, std::uint64_t index",
    "rl/recall.h": "std::uint64_t seed, std::uint64_t index",
    "rl/settings.h": "",
    "rl/trajectory/policy_datum.h": "const Rollout& rollout",
    "rl/trajectory/reference.h": "const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, std::int32_t end",
    "rl/step_batch.h": "const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number, TrainerPort& trainer",
    "runs/policy_loss.h": "",
    "losses/custom_loss.h": "const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph, const std::vector<float>& logprobs, "
                                         "const std::vector<std::int64_t>& shape, const TrainingDatum& datum",
    "serving/conversion.h": "",
    "serving/loading.h": "",
    "planning/memory_plan.h": "",
    "base/stop_token.h": "void (*step)()",
    "jobs/rl_job.h": "",
    "jobs/sft_job.h": "",
    "runs/run.h": "const StopSource& source, RunWork& work",
    "serving/serving.h": "const RuntimeSettings& settings, const Request& request, GenerationService::OnToken on_token, GenerationService::OnDone on_done",
    "store/database.h": "",
    "tensor/device.h": "std::int64_t rows, std::int64_t cols",
    "tensor/file_memory.h": "std::size_t bytes",
    "tensor/memory_pool.h": "std::size_t bytes",
    "text/tokenizer/tokenizer.h": "",
    "text/tokenizer/vocabulary.h": "",
    "train/adapter_trainer.h": f"Runtime& runtime, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterLayout> layout, {LEARNS}, Request& request",
    "train/losses.h": "const std::vector<TrainSequence>& data, std::int64_t vocabulary",
    "train/trainer.h": f"Runtime& runtime, const WeightImages& images, {LEARNS}, Engine& engine",
    "api/openai/response_input.h": "const Json& messages_of_the_previous_response, const Json& json",
    "checkpoint/adapter_folder.h": "const AdapterLayout& layout, const WeightImages& images, const std::shared_ptr<const Model>& model",
    "host/futures.h": "std::shared_ptr<Deadlines> deadlines, std::shared_ptr<TrainingStore> store, const std::string& owner, const std::string& model, void (*answer)(const Outcome&)",
    "host/stored_records.h": "std::shared_ptr<TrainingStore> store, const std::string& owner, const std::string& name",
    "planning/shape_memory.h": "const ModelSizes& sizes, const ShapeWork& work, void (*use)(const ShapePlan&)",
    "rl/trajectory/play.h": "const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, Turn (*write)(const std::vector<std::int32_t>&)",
    "serving/generation_defaults.h": "",
    "sync/manifest.h": "const std::string& text",
    "sync/tensor_codec.h": "const std::string& old_bytes, const std::string& new_bytes, std::string& to",
}  # fmt: skip
# A header a line, and behind it the names that its lines of use take for granted.
OF_ANY_TYPE = """\
api/api_keys.h given key
api/fireworks/completion_request.h json
api/fireworks/fireworks_routes.h routes service
api/fireworks/model_completions.h deployments routes
api/fireworks/shape_routes.h call shapes
api/harmless_fields.h
api/json_text.h logprob out text
api/json_web_token.h now
api/openai/chat_answer.h body long_writer owner responder service
api/openai/chat_messages.h value
api/openai/chat_request.h body
api/openai/completion_answer.h body long_writer owner responder service streams
api/openai/completion_request.h body
api/openai/embedding_answer.h owner responder service
api/openai/native_parser.h starts_in_reasoning tools
api/openai/no_op_fields.h fields
api/openai/response_writer.h keep
api/openai/stored_responses.h id items messages response
api/openai/token_routes.h body service
api/operations.h routes service state
api/percent.h
api/store_routes.h routes
api/tinker/proto_codec.h body output
api/tinker/sparse.h
api/tinker/tinker_routes.h service
api/tinker/training_routes.h fields service table
api/tinker/wire_fields.h json
base/ascii.h header
base/base64.h
base/choice.h
base/free_memory.h use
base/give_way_everywhere.h
base/guarded.h
base/hash.h
base/hub_name.h
base/lfs_pointer.h text
base/pause_point.h
base/processor_nodes.h
base/seconds.h
base/server_paths.h
base/share_account.h
benchmark/arithmetic.h
benchmark/gemm.h
benchmark/noise.h
benchmark/operation_profile.h work
benchmark/profile_samples.h work
checkpoint/gguf_header.h
checkpoint/gguf_vocabulary.h file
checkpoint/model_source.h
cli/chat_lines.h line
cli/chat_model.h messages runtime settings show
cli/commands.h
cli/common_options.h settings table
cli/demo_report.h results
cli/deploy_options.h has_keys table training
cli/eval_drafts.h
cli/far_options.h quiet table
cli/follow_options.h fleet followed gate publish service table url
cli/gate_file.h
cli/keep_forward_options.h table settings
cli/live_page.h table
cli/profile_options.h table runtime work
cli/render_train.h
cli/rl_options.h settings table
cli/roofline.h runtime
cli/serve_deployments.h deploy name opener runtime service
cli/serve_http_options.h table training
cli/serve_keys.h deployments executor file rates
cli/serve_load.h url
cli/serve_publishing.h executor folder opened settings training_options
cli/serve_training_options.h base generation table
cli/shipped.h
cli/train_command.h table run asked
cli/trained_options.h settings table
cli/usage_error.h
engine/acceptance.h s tokens
engine/admission.h limits request
engine/constraint_masks.h s token vocabulary
engine/drafts/draft_length.h rows seconds
engine/drafts/draft_options.h
engine/drafts/mtp_steps.h runtime weights pages page_size plan model_weights sequences
engine/drafts/sibling_source.h prompt
engine/fair_order.h running plan
engine/kept_step.h backend flags forwards identity options plan
engine/live_room.h
engine/options.h
engine/request.h
engine/sampling_parameters.h
engine/sequence.h
engine/step_calls.h in plan wants
engine/step_follower.h in mail runtime
engine/step_predictor.h
fleet/channel_fleet.h
fleet/fleet_watch.h id store
fleet/follower.h executor options runtime service store weights
fleet/publisher.h executor files runtime weights
host/batch_loss.h batch limits logprobs name
host/client_json.h
host/control_records.h
host/heard_sessions.h
host/loss_inputs.h batch runtime
host/promoted_models.h commons model
host/recent_texts.h model owner request
host/sampling_request.h
host/sessions.h store
host/training_options.h
host/training_records.h
host/training_service.h base generation options owner
host/training_statistics.h
http/page_server.h print
http/prompt_thread.h
http/server.h api print
jobs/deployment_gate.h live service snapshot spec
jobs/distill_job.h
jobs/far_teacher.h settings tokenizer stop texts use
jobs/gate_side.h environment ids side spec stop
jobs/preference_job.h
jobs/teacher_file.h
jobs/text_alignment.h
losses/datum.h
losses/graph_math.h
losses/graph_operations.h call
losses/graph_value.h
losses/loss_graph.h graph_json inputs
losses/preference_losses.h chosen rejected
model/archs/gguf_names.h
model/blocks/indexer.h config facts rotary q_latent
model/blocks/routed_mlp.h c facts
model/compute_copy.h backend item parameter profile row values
model/config_key_log.h config
model/default_context.h
model/file_tensor.h norm
model/kept_forwards.h bytes runtime
model/manifest.h outputs inputs
model/observer.h
model/operations/add.h attention_output ctx x
model/operations/attention.h ctx entry layer q shape
model/operations/attention_observer.h
model/operations/embedding.h ctx table
model/operations/experts.h ctx down gate h routing up
model/operations/gqa_entry.h ctx k rotary shape v
model/operations/index_select.h ctx heads k layer q size top_k w
model/operations/join_norms.h ctx eh_proj embedded enorm hidden hnorm
model/operations/key_rows.h cache count ctx log_sum o positions q shape
model/operations/layer_norm.h bias ctx weight x
model/operations/linear.h ctx h k_bias k_proj q_proj
model/operations/mla_entry.h ctx h kv_a kv_a_norm rotary
model/operations/mla_expanded.h ctx eps kv latent norm q_b rotary shape w_uk w_uv
model/operations/mla_query.h ctx latent q_b rotary w_uk
model/operations/mla_values.h ctx o w_uv
model/operations/ranks.h ctx input
model/operations/rms_norm.h ctx norm x
model/operations/rope.h ctx heads rotary size x
model/operations/route.h ctx h router rule sparse_layer
model/operations/swiglu.h ctx gate up x
model/operations/value_head.h bias ctx head segment t v x
model/rope_config.h reader
model/rope_table.h
model/stored_names.h
model/weights_hash.h manifest numbers
numerics/isa/memory_reads.h block numbers
numerics/isa/transpose.h in out
numerics/isa/word_classes.h classes counts weights
numerics/mxfp4.h blocks groups scales values
parallel/exchange_counts.h place
parallel/mpi_wire.h
parallel/planned_layout.h
parallel/process_communicator.h mail
parallel/process_ranks.h layout mail
parallel/process_watch.h mail
parallel/processes.h layout
parity/bench_trainer.h data lead model options runtime
parity/doctor.h bandwidth facts folder rows
parity/engine_ways.h engine
parity/index_overlap.h runtime sequences weights
parity/index_search.h runtime weights sequences
parity/machine.h
parity/parity.h
parity/parity_run.h
parity/score.h print settings
parity/self_check.h
planning/family_list.h print
planning/mechanisms.h settings
planning/memory_verdict.h plan settings
planning/model_sizes.h config
planning/shape_catalog.h text
planning/shape_configs.h
planning/shape_resolver.h catalog
planning/step_plan.h data layout model profile rank
rl/agent_environment.h
rl/bootstrap.h greedy_of_problem pass_at_1_of_problem seed
rl/countdown_environment.h
rl/countdown_verifier.h
rl/critic.h batch optimizer port rl settings
rl/critic_settings.h
rl/dozen_environment.h
rl/gae.h c i r rollouts
rl/kl.h pi mu print
rl/lockbox_environment.h
rl/policy_training.h environment rate sampler settings tokenizer trainer
rl/shared_prompts.h settings environment tokenizer
runs/distillation/teachers.h questions runtime settings stop tokenizer use vocabulary
runs/local_mtp.h adam batch initial opened options run trainer
runs/metrics_columns.h line
runs/page_bundle.h
runs/planned_run.h asked plan resolved settings trainer
runs/preferences/preference_data.h chat_data positions vocabulary
runs/preferences/preference_run.h make_input
runs/prompt_packs.h source batch train_on
runs/rl_stack.h env s
runs/run_reader.h
runs/run_report.h
runs/sft_run.h make_input
runs/share_prompts.h
serving/deployment_record.h
serving/draft_evaluation.h requests with without
serving/gate_reports.h json
serving/guarded_call.h generation on_done
serving/model_name.h
serving/prompt_renderer.h request_line
serving/served_model.h parts talk
serving/serving_options.h opened
serving/stop_strings.h
serving/traffic.h
sync/arc_delta.h before payload
sync/channel.h store id
sync/class_scan.h kind n old
sync/element.h word
sync/planes_codec.h kind old_words new_words n to
sync/read_alone.h
sync/remote_store.h
sync/replica_record.h record store
sync/rice_mean.h
sync/snapshot_ways.h have local store target
sync/store.h after before text
sync/transfer.h
tensor/cuda_stream.h use
tensor/device_pointer.h view
tensor/dtype.h
tensor/memory.h
tensor/stream.h view
text/grammar/call_grammar.h format source tokenizer tools
text/grammar/code_point_set.h
text/grammar/formats.h work
text/grammar/numbers.h work
text/grammar/pattern.h work
text/grammar/schema_facts.h schema work
text/grammar/schema_rules.h builder json schema work
text/grammar/text_dfa.h a b other work
text/grammar/token_grammar.h schema token tokens words
text/message/tool_call_formats.h chat_template_source
text/template/builtins.h
text/template/chat_template.h messages
text/template/comparison.h value other
text/template/lexer.h
text/template/objects.h key value
text/template/parser.h source
text/template/scopes.h parsed
text/template/token_stream.h
text/text_range.h
text/tokenizer/byte_alphabet.h
text/tokenizer/json_object.h json
text/tokenizer/merge_table.h id left n rank right
text/tokenizer/metaspace.h object
text/tokenizer/normalizer.h arena json piece
text/tokenizer/piece_cache.h added ids owner piece
text/tokenizer/regex.h
text/tokenizer/split_patterns.h
text/tokenizer/tiktoken.h config ranks text
text/utf8.h bytes
train/data.h
train/gradient_file.h bins folder rank stream
train/gradient_norm.h backend gradient groups p
train/micro_batch.h data own run
train/optimizers/optimizer.h parameter role step views
train/options.h
train/quantised_masters.h backend master own_rows_of_the_copy parameter profile
train/rank_trainer.h adam call data images options place result runtime sums
train/rank_trainers.h images options runtime
train/router_loads.h place rate runtime state
train/schedule.h
train/state_file.h backend bytes cols i options parameters rows
train/value_loss.h
trained/led_model.h settings base
trained/model_calls.h out in
trained/trained_settings.h
"""
# What lines use beside their own header.
BESIDE = ["base/signals.h", "engine/engine.h", "host/control_records.h", "kernels/launch.h", "serving/loading.h", "api/routes.h", "api/json_fields.h",
          "train/trainer.h", "sync/store.h", "host/training_service.h", "engine/scheduler.h", "engine/step_record.h", "text/tokenizer/tokenizer.h",
          "runs/rl_stack.h", "rl/environment.h", "cli/options.h", "observe/bounded_log.h", "fleet/follower.h", "api/openai/alias_gate.h",
          "cli/option_rows.h", "runs/trainer_port.h", "base/hash.h", "runs/sft_data.h", "model/archs/latent_mtp.h", "runs/local_trainer.h", "runs/chat_data.h", "host/memory_room.h",
          "runs/value_port.h", "jobs/distill_work.h", "host/key_limit.h"]
ANY = ("struct Any { template <class T> operator T&() const; template <class T> operator T&&() const; "
       "template <class... A> Any operator()(A&&...) const; }; struct Result { template <class T> Result(T&&); };")
GIVEN |= {header: ", ".join(f"Any {name}" for name in names) for header, *names in map(str.split, OF_ANY_TYPE.splitlines())}
GIVEN |= {header: names.strip() for header, _, names in (line.partition(":") for line in NAMES.splitlines())}


def usage_of(text):
    """The lines of use in a header's text, as statements."""
    lines = re.findall(r"^//   (.*)$", text.split("#pragma once")[0], re.M)
    return [re.sub(r"\s*\.\.\.(?:\w+\.\.\.)?;?", " ", line.split("  //")[0]) for line in lines]


def program(usages, beside=BESIDE):
    """One function a header; #line leads an error back to the header."""
    parts = ["#include <filesystem>", "#include <optional>", "#include <thread>", *(f'#include "{header}"' for header in [*usages, *beside]), "namespace lockstep {", ANY]
    for number, (header, lines) in enumerate(usages.items()):
        inner = set(re.findall(r"^namespace (lockstep::\w+) \{", (ROOT / "src" / header).read_text(), re.M))
        result = "Result" if any(re.search(r"\breturn [^;]", line) for line in lines) else "void"
        parts += [f"{result} use_{number}({GIVEN[header]}) {{", *(f"using namespace {name};" for name in inner)]
        parts += [f'#line 1 "the line of use in src/{header}"', *lines, ";", "}"]
    return "\n".join([*parts, "}  // namespace lockstep", ""])


def compiled(text):
    compiler = shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise Skip("no C++ compiler")
    source = TMP / "usage_lines.cpp"
    source.write_text(text)
    command = [compiler, "-std=c++20", "-fsyntax-only", "-w", "-mavx2", "-mfma", "-mf16c", f"-I{ROOT / 'src'}", "-DTOML_HEADER_ONLY=0", str(source)]
    return subprocess.run(command, capture_output=True, text=True)


with check("lines-of-use-compile"):
    usages = {header: usage_of((ROOT / "src" / header).read_text()) for header in GIVEN}
    assert all(usages.values()), f"without a line of use: {[header for header, lines in usages.items() if not lines]}"
    done = compiled(program(usages))
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:3000]

with check("control"):
    # A line that names what its header has not. Of what stands beside lines these need one header: all of them are compiled above, for many seconds.
    beside = ["kernels/launch.h"]
    false = usage_of("//   Device device({.backend = BackendKind::cpu, .threads = 2});\n#pragma once\n")
    # And one that calls what its class has not, with names of any type.
    lacking = usage_of("//   MergeTable t; t.reserve(n); t.merge(left, right);\n#pragma once\n")
    done = compiled(program({"tensor/device.h": false, "text/tokenizer/merge_table.h": lacking}, beside))
    for header in ("tensor/device.h", "text/tokenizer/merge_table.h"):
        assert done.returncode != 0 and f"the line of use in src/{header}" in done.stderr, done.stderr[:1000]
    whole = usage_of("//   MergeTable t; t.reserve(n); t.put(left, right, {rank, id});\n#pragma once\n")
    assert compiled(program({"text/tokenizer/merge_table.h": whole}, beside)).returncode == 0


# --- every other header: a call of what it declares has as many arguments as that takes

def within(text, at):
    """What stands in the brackets that open at `at`; None: they do not close."""
    depth, quoted = 0, ""
    for i in range(at, len(text)):
        c = text[i]
        if quoted:
            quoted = "" if c == quoted and text[i - 1] != "\\" else quoted
        elif c == '"':
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return text[at + 1 : i]
    return None


def parts(text):
    """Split at the commas that stand in no brackets and no text. (<> are brackets behind a name, of a template.)"""
    out, depth, quoted = [""], 0, ""
    for i, c in enumerate(text):
        if quoted:
            quoted = "" if c == quoted and text[i - 1] != "\\" else quoted
        elif c == '"':
            quoted = c
        elif c in "([{" or (c == "<" and i > 0 and (text[i - 1].isalnum() or text[i - 1] == "_")):
            depth += 1
        elif c in ")]}" or (c == ">" and depth > 0 and text[i - 1] not in "- "):
            depth -= 1
        if c == "," and depth == 0 and not quoted:
            out.append("")
        else:
            out[-1] += c
    return [part for part in out if part.strip()]


DECLARED = re.compile(r"^[ \t]*(?:(?!(?:return|else|if|for|while|throw|case|fail)\b)[\w:<>,&*\[\] ]*?[ &*])?~?(\w+)\(", re.M)


def counts(code):
    """name -> {(fewest, most arguments)}"""
    found = {}
    for declared in DECLARED.finditer(code):
        inside = within(code, declared.end() - 1)
        if inside is not None:
            parameters = parts(inside)
            found.setdefault(declared[1], set()).add((sum("=" not in p for p in parameters), len(parameters)))
    return found


def wrong_counts(text):
    """Calls in the lines of use that give another number of arguments than the header's own functions take."""
    known = counts(re.sub(r"//[^\n]*", "", text.split("#pragma once")[1]))
    wrong = []
    for line in re.findall(r"^//   (.*)$", text.split("#pragma once")[0], re.M):
        line = line.split("  //")[0]
        for call in re.finditer(r"(?:\b([A-Z]\w*) )?\b(\w+)\(", line):
            name, inside = call[1] or call[2], within(line, call.end() - 1)  # `Box box(2)` calls Box
            if name not in known or inside is None or "..." in inside:
                continue
            given = len(parts(inside))
            if not any(fewest <= given <= most for fewest, most in known[name]):
                wrong.append(f"{name} with {given} arguments, it takes {sorted(known[name])}")
    return wrong


with check("calls-have-their-arguments"):
    headers = {path: path.read_text() for path in sorted((ROOT / "src").rglob("*.h"))}
    wrong = [f"src/{path.relative_to(ROOT / 'src')}: {one}" for path, text in headers.items() if "#pragma once" in text for one in wrong_counts(text)]
    assert not wrong, "\n".join([f"{len(wrong)} lines of use are false", *wrong])
    header = "//   Box box(2); box.put(1, {3, 4}); box.get(); fill(box, \"a, b\");\n#pragma once\nclass Box {\n public:\n  explicit Box(int size);\n  void put(int at, const Pair<int, int>& what{});\n  int get(int at = 0) const;\n};\nvoid fill(Box& box,\n          const std::string& text);\n"
    assert wrong_counts(header) == []
    for old, new, name in (("box(2)", "box(2, 3)", "Box"), ("put(1, {3, 4})", "put({3, 4})", "put"), ("get()", "get(1, 2)", "get"), ("fill(box, ", "fill(", "fill")):
        assert [one.split()[0] for one in wrong_counts(header.replace(old, new))] == [name], new
