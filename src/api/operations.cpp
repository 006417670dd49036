#include "api/operations.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "api/errors.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
constexpr double kStuckSeconds = 10;  // a step that takes longer counts as stuck

class Operations : public std::enable_shared_from_this<Operations> {
 public:
  Operations(std::shared_ptr<GenerationService> service, std::shared_ptr<ServerState> state, std::string build)
      : service_(std::move(service)), state_(std::move(state)), build_(std::move(build)) {}

  void health(const std::shared_ptr<Responder>& out) const {
    const Json json{{"status", "ok"},
                    {"model", service_->model().name()},
                    {"weights_version", service_->weights().version()},
                    {"profile", service_->model().profile_digest()},
                    {"open_requests", service_->bounds().open()}};
    out->send({200, "application/json", json.dump(-1, ' ', false, Json::error_handler_t::replace), {}});
  }

  // Answers once the engine has ended its present step; at once, not ready, when an earlier probe has waited more than kStuckSeconds for that.
  void ready(const std::shared_ptr<Responder>& out) {
    if (state_->draining) return out->send(not_ready("the server is stopping"));
    {
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      if (asked_ == 0) oldest_ = now;
      const double seconds = std::chrono::duration<double>(now - oldest_).count();
      if (seconds > kStuckSeconds) return out->send(not_ready(fmt::format("the engine has been in one step for {:.0f} seconds", seconds)));
      ++asked_;
    }
    try {
      service_->snapshot([self = shared_from_this(), out](const ServiceSnapshot& s) {
        {
          const std::lock_guard lock(self->mutex_);
          --self->asked_;
          self->oldest_ = Clock::now();
        }
        out->send({200, "application/json", Json{{"status", "ready"}, {"running", s.running}, {"waiting", s.waiting}}.dump(), {}});
      });
    } catch (const Error& e) {
      const std::lock_guard lock(mutex_);
      --asked_;
      out->send(not_ready(without_server_paths(e.what())));
    }
  }

  void metrics(const std::shared_ptr<Responder>& out) {
    try {
      service_->snapshot([self = shared_from_this(), out](const ServiceSnapshot& s) { out->send(self->scrape(&s)); });
    } catch (const Error&) {
      out->send(scrape(nullptr));  // the engine has stopped; the metrics without it
    }
  }

 private:
  static ApiResponse not_ready(const std::string& why) {
    ApiResponse response = error_response_of(503, why);
    response.headers.emplace_back("Retry-After", "1");
    return response;
  }

  ApiResponse scrape(const ServiceSnapshot* snapshot) const {
    PrometheusText text;
    text.family("lockstep_build_info", "gauge", "Always 1; its labels say what runs.");
    text.sample({{"version", build_},
                 {"model", service_->model().name()},
                 {"profile", service_->model().profile_digest()},
                 {"profile_name", service_->model().profile_name()}},
                1);
    state_->append_metrics(text);
    append_service(text);
    if (snapshot) append_engine(text, *snapshot);
    append_process_metrics(text);
    return {200, "text/plain; version=0.0.4; charset=utf-8", text.take(), {}};
  }

  static void one(PrometheusText& text, std::string_view name, std::string_view type, std::string_view help, double value) {
    text.family(name, type, help);
    text.sample({}, value);
  }
  template <class T>
  static void one(PrometheusText& text, std::string_view name, std::string_view type, std::string_view help, const T& value) {
    one(text, name, type, help, static_cast<double>(value));
  }

  void append_service(PrometheusText& text) const {
    const ServiceStatistics& s = service_->statistics();
    one(text, "lockstep_prompt_tokens_total", "counter", "Tokens of prompts taken.", s.prompt_tokens.load());
    one(text, "lockstep_generated_tokens_total", "counter", "Tokens generated for requests.", s.generated_tokens.load());
    one(text, "lockstep_sequences_total", "counter", "Sequences taken (a request with n choices is n).", s.requests.load());
    one(text, "lockstep_sequences_refused_total", "counter", "Sequences refused because the queue was full.", s.refused.load());
    text.family("lockstep_sequences_finished_total", "counter", "Sequences ended, by reason.");
    text.sample({{"reason", "stop"}}, static_cast<double>(s.stopped.load()));
    text.sample({{"reason", "length"}}, static_cast<double>(s.length.load()));
    text.sample({{"reason", "cancelled"}}, static_cast<double>(s.cancelled.load()));
    text.sample({{"reason", "error"}}, static_cast<double>(s.failed.load()));
    text.family("lockstep_sequence_queue_seconds", "histogram", "From a sequence's arrival to the first forward with its tokens.");
    text.histogram({}, s.queue_seconds);
    text.family("lockstep_time_to_first_token_seconds", "histogram", "From a sequence's arrival to its first token.");
    text.histogram({}, s.first_token_seconds);
    text.family("lockstep_sequence_seconds", "histogram", "From a sequence's arrival to its end.");
    text.histogram({}, s.seconds);
    append_classes(text, s);
    one(text, "lockstep_held_streams", "gauge", "Answers that are held now, until a program says how they go on (docs/openai-api.md).", s.held.load());
    one(text, "lockstep_stream_holds_total", "counter", "Times that an answer was held.", s.holds.load());
    one(text, "lockstep_stream_rollbacks_total", "counter", "Times that a held answer was rolled back.", s.roll_backs.load());
    one(text, "lockstep_stream_put_in_tokens_total", "counter", "Tokens put into held answers by programs.", s.put_in_tokens.load());
    one(text, "lockstep_open_sequences", "gauge", "Sequences taken and not ended.", service_->bounds().open());
    one(text, "lockstep_open_sequences_limit", "gauge", "Sequences that may be open; more are refused with 429.", service_->bounds().max_open());
    one(text, "lockstep_weights_version", "gauge", "Version of the weights that new steps use.", service_->weights().version());
  }

  // For live answers and rollouts; training has no sequences.
  static void append_classes(PrometheusText& text, const ServiceStatistics& s) {
    const auto each = [&](std::string_view name, std::string_view type, std::string_view help, auto&& append) {
      text.family(name, type, help);
      for (const WorkClass work : {WorkClass::live, WorkClass::rollouts})
        append(PrometheusText::Labels{{"class", work_class_name(work)}}, s.by_class[static_cast<std::size_t>(work)]);
    };
    each("lockstep_class_sequences_total", "counter", "Sequences taken, by class (docs/tenants.md).",
         [&](const auto& labels, const ClassStatistics& c) { text.sample(labels, static_cast<double>(c.requests.load())); });
    each("lockstep_class_tokens_total", "counter", "Tokens of sequences that have ended, by class.",
         [&](const auto& labels, const ClassStatistics& c) { text.sample(labels, static_cast<double>(c.tokens.load())); });
    each("lockstep_class_first_token_seconds", "histogram", "From a sequence's arrival to its first token, by class, where tokens are told as they come.",
         [&](const auto& labels, const ClassStatistics& c) { text.histogram(labels, c.first_token_seconds); });
    each("lockstep_class_token_gap_seconds", "histogram", "From a token to the next, by class, where tokens are told as they come.",
         [&](const auto& labels, const ClassStatistics& c) { text.histogram(labels, c.token_gap_seconds); });
  }

  // Under vLLM's names.
  static void append_drafts(PrometheusText& text, const DraftCounters& c) {
    one(text, "lockstep_spec_decode_num_drafts_total", "counter", "Drafts that were checked (docs/speculation.md).", c.drafts);
    text.family("lockstep_spec_decode_num_draft_tokens_total", "counter", "Tokens of drafts that were checked, by where they came from.");
    for (const DraftKind kind : draft_kinds()) text.sample({{"source", draft_name(kind)}}, static_cast<double>(c.tokens_by(kind)));
    text.family("lockstep_spec_decode_num_accepted_tokens_total", "counter", "Of those, tokens that were what the model said.");
    for (const DraftKind kind : draft_kinds()) text.sample({{"source", draft_name(kind)}}, static_cast<double>(c.accepted_by(kind)));
    text.family("lockstep_spec_decode_num_accepted_tokens_per_pos_total", "counter", "Of those, by their place in the draft, from 0.");
    for (std::size_t i = 0; i < c.accepted_at.size(); ++i) text.sample({{"position", std::to_string(i)}}, static_cast<double>(c.accepted_at[i]));
  }

  static void append_engine(PrometheusText& text, const ServiceSnapshot& s) {
    one(text, "lockstep_sequences_running", "gauge", "Sequences in the batch.", s.running);
    one(text, "lockstep_sequences_waiting", "gauge", "Sequences behind the batch.", s.waiting);
    text.family("lockstep_key_sequences_waiting", "gauge", "Of those, by class and key: they wait for a place or for pages of the cache.");
    for (const WaitingSequences& one : s.waiting_by_key) text.sample({{"class", work_class_name(one.work)}, {"key", one.key}}, static_cast<double>(one.count));
    one(text, "lockstep_cache_pages", "gauge", "Pages of the key-value cache.", s.pages);
    one(text, "lockstep_cache_pages_used", "gauge", "Pages that sequences or cached prefixes hold.", s.pages - s.free_pages);
    text.family("lockstep_memory_bytes", "gauge", "Device memory by what it holds.");
    text.sample({{"category", "cache"}}, static_cast<double>(s.cache_bytes));
    text.sample({{"category", "weights"}}, static_cast<double>(s.weight_bytes));
    text.sample({{"category", "workspace"}}, static_cast<double>(s.workspace_bytes));
    const EngineCounters& c = s.counters;
    const std::pair<std::string_view, std::int64_t> counters[] = {{"forwards", c.forwards},
                                                                  {"rows", c.rows},
                                                                  {"prefill_tokens", c.prefill_tokens},
                                                                  {"decode_tokens", c.decode_tokens},
                                                                  {"chunks", c.chunks},
                                                                  {"mixed_batches", c.mixed_batches},
                                                                  {"cache_hit_tokens", c.cache_hit_tokens},
                                                                  {"preemptions", c.preemptions},
                                                                  {"evictions", c.evictions},
                                                                  {"sampled_tokens", c.sampled_tokens},
                                                                  {"mixed_version_tokens", c.mixed_version_tokens},
                                                                  {"draft_rows", c.draft_rows},
                                                                  {"live_rows", c.live_rows},
                                                                  {"rollout_rows", c.other_rows},
                                                                  {"held_back_forwards", c.held_back_forwards},
                                                                  {"following_forwards", c.following_forwards},
                                                                  {"failed_requests", c.failed_requests},
                                                                  {"pairs_visible", c.work.pairs_visible},
                                                                  {"pairs_skipped", c.work.pairs_skipped()},
                                                                  {"expert_rows", c.work.expert_rows}};
    for (const auto& [name, value] : counters)
      one(text, fmt::format("lockstep_engine_{}_total", name), "counter", "A counter of the engine (engine/options.h).", value);
    append_drafts(text, c.drafts);
    one(text, "lockstep_engine_largest_batch", "gauge", "Rows of the largest forward so far.", c.largest_batch);
  }

  std::shared_ptr<GenerationService> service_;
  std::shared_ptr<ServerState> state_;
  std::string build_;
  std::mutex mutex_;  // asked_, oldest_
  int asked_ = 0;     // probes that wait for the engine
  Clock::time_point oldest_{};
};
}  // namespace

void add_operation_routes(Routes& routes, std::shared_ptr<GenerationService> service, std::shared_ptr<ServerState> state, const std::string& build) {
  const auto operations = std::make_shared<Operations>(std::move(service), std::move(state), build);
  const auto row = [&](const char* path, auto handler, bool needs_key) {
    routes.add({.method = "GET",
                .path = path,
                .handler = [operations, handler](const ApiRequest&, const std::shared_ptr<Responder>& out) { handler(*operations, out); },
                .needs_key = needs_key,
                .while_draining = true,
                .query = std::nullopt});  // monitoring programs add parameters of their own
  };
  row(
      "/healthz", [](Operations& o, const auto& out) { o.health(out); }, false);
  row(
      "/readyz", [](Operations& o, const auto& out) { o.ready(out); }, false);
  row(
      "/metrics", [](Operations& o, const auto& out) { o.metrics(out); }, true);
}

}  // namespace lockstep
