#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/seconds.h"
#include "engine/acceptance.h"
#include "engine/constraint_masks.h"
#include "engine/drafts/mtp_steps.h"
#include "engine/slice_results.h"
#include "model/segment_range.h"
#include "model/value_head.h"
#include "observe/trace.h"

namespace lockstep {

namespace {
std::int64_t resolve_pages(const Runtime& runtime, const EngineOptions& o, bool mtp) {
  if (o.cache_pages > 0) return o.cache_pages;
  const std::int64_t page_bytes = KvCache::bytes_a_position(runtime.model->cache_shapes(runtime.profile), runtime.profile) * o.page_size +
                                  (mtp ? MtpSteps::page_bytes(*runtime.model, runtime.profile, o.page_size) : 0);
  const std::int64_t pages = o.cache_bytes / std::max<std::int64_t>(page_bytes, 1);
  if (pages < 1)
    fail(ErrorCode::invalid_argument, "cache_bytes is {}, allowed is {} (one page of {} positions) or more", o.cache_bytes, page_bytes, o.page_size);
  const std::int64_t pages_a_sequence = (runtime.max_positions + o.page_size - 1) / o.page_size;
  return std::min(pages, o.max_sequences * pages_a_sequence);
}

bool reads_rows(const EngineOptions& options, Runtime& runtime) {
  return options.kept_forwards && &options.kept_forwards->backend() == &runtime.backend && options.ranks.size() == 1;
}
}  // namespace

Engine::Engine(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const EngineOptions& options, std::shared_ptr<const WeightSet> mtp)
    : runtime_(runtime),
      options_(options),
      stages_(stages_at_work(runtime.model->segments(), options.ranks.pp)),
      guesses_(options.drafts, runtime.model->facts().vocabulary) {
  check_options(options);
  refuse_value_head(*runtime.model, "there are no tokens to sample");
  check_draft_sources(options.drafts, mtp != nullptr, "the source of drafts");
  check_acceptance(options.drafts, "the acceptance of drafts");
  options_.cache_pages = resolve_pages(runtime, options, mtp && runtime.model->mtp());
  limits_ = {runtime.model->facts().vocabulary, runtime.max_positions, options_.cache_pages * options_.page_size};
  scheduler_ = std::make_unique<Scheduler>(options_, options_.cache_pages, counters_);
  steps_ = std::make_unique<RankSteps>(runtime, options_);
  if (mtp) {
    steps_->set_mtp(std::move(mtp));
    guesses_.set_layer([this](std::span<Sequence* const> sequences, std::int64_t tokens) { return steps_->guess(sequences, tokens); }, runtime.max_positions);
  }
  set_weights(std::move(weights));
}

Engine::~Engine() = default;

void Engine::set_weights(std::shared_ptr<const WeightSet> weights, InFlight in_flight, std::shared_ptr<const WeightSet> mtp) {
  if (!weights) fail(ErrorCode::invalid_argument, "weights is null, allowed is a set of weights");
  check_weights(*weights, *runtime_.model, runtime_.profile);
  if (mtp || weights != weights_.lock()) under_way_.settle();
  if (mtp && !steps_->has_mtp()) fail(ErrorCode::invalid_argument, "a layer of multi-token prediction is given, and the engine was made without one");
  if (mtp && steps_->set_mtp_weights(std::move(mtp))) scheduler_->set_weights({});  // entries of another layer
  const std::shared_ptr<const WeightSet> before = weights_.lock();
  if (weights == before) return;
  for (const auto& [id, s] : sequences_) {
    if (!s->admitted || s->weights) continue;
    if (in_flight == InFlight::finish) {
      s->weights = before;
      continue;
    }
    // Scores and pooled states stand in no token that could be marked: they are always of one version.
    const bool again = in_flight == InFlight::reprefill || s->scores_prompt || s->pooling != Pooling::none;
    if (again && s->drafting) s->drafting->end_cycle();  // it goes on as one that begins with its text
    if (again && s->running) scheduler_->preempt(*s);
    if (!s->running) s->pooled_sum.clear(), s->pooled_positions = 0;  // all of it comes again
  }
  weights_ = weights;
  version_ = weights->version;
  scheduler_->set_weights(weights->identity);
  steps_->set_weights(std::move(weights));
}

std::uint64_t Engine::submit(Request request, OnToken on_token, OnDone on_done) {
  check_request(request, limits_);
  if (request.weights) check_weights(*request.weights, *runtime_.model, runtime_.profile);
  if (request.adapter) request.adapter->layout->check_fits(runtime_.model->manifest());
  if (request.experts && runtime_.model->facts().expert_shape().row() == 0)
    fail(ErrorCode::unsupported, "experts are asked for, and the model ({}) has none", runtime_.model->family());
  auto s = std::make_unique<Sequence>();
  s->id = s->generation.id = next_id_++;
  s->generation.times.taken = std::chrono::steady_clock::now();
  s->sampling = std::move(request.sampling);
  s->weights = std::move(request.weights);
  s->adapter = std::move(request.adapter);
  s->prefix_owner = request.prefix_owner;
  s->account = std::move(request.account);
  s->tells_experts = request.experts;
  s->keeps_forward = request.keep_forward && steps_->keeps_forwards();
  const SamplingParameters& cuts = s->sampling;
  s->tells_kept = request.kept_tokens && (cuts.constraint || cuts.top_k > 0 || cuts.top_p < 1 || cuts.min_p > 0);
  s->given = std::move(request.given);
  s->pooling = request.pooling;
  if (s->pooling == Pooling::mean) s->pace.cached_pages = 0;  // a cached position has no hidden state to add
  s->tokens = std::move(request.prompt);
  s->prompt_length = s->known();
  s->on_token = std::move(on_token);
  s->on_done = std::move(on_done);
  if (request.prompt_logprobs) {
    s->scores_prompt = true;
    s->pace.cached_pages = 0;  // a cached position has no row to score
    // An observer sees every row, and where a row's experts were is not kept.
    s->reads_kept = reads_rows(options_, runtime_) && options_.prefix_cache && !request.experts && !runtime_.observer;
    s->generation.prompt_logprobs.resize(static_cast<std::size_t>(s->prompt_length - 1), std::numeric_limits<float>::quiet_NaN());
    if (tells_top(*s)) s->generation.prompt_top_logprobs.resize(s->generation.prompt_logprobs.size());
    s->prompt_targets = std::move(request.prompt_targets);
    s->prompt_targets_per_row = request.prompt_targets_per_row;
    s->prompt_draws = request.prompt_draws;
    if (request.experts) s->generation.prompt_experts.resize(s->generation.prompt_logprobs.size());
    s->generation.prompt_target_logprobs.resize(s->prompt_targets.size());
    s->generation.prompt_draws.resize(s->generation.prompt_logprobs.size() * static_cast<std::size_t>(s->prompt_draws));
  }
  s->said = request.said;
  const std::span<const std::int32_t> text(s->tokens);
  s->adjustments.begin(s->sampling, text.first(static_cast<std::size_t>(s->answer_begin())));
  replay_tokens(*s, text.subspan(static_cast<std::size_t>(s->answer_begin())));
  guesses_.begin(*s, request);
  Sequence& added = *s;
  sequences_.emplace(added.id, std::move(s));
  scheduler_->add(added);
  return added.id;
}

void Engine::set_pace(std::uint64_t id, const Pace& pace) {
  if (const auto it = sequences_.find(id); it != sequences_.end()) it->second->pace = pace;
}

void Engine::preempt(std::uint64_t id) {
  if (const auto it = sequences_.find(id); it != sequences_.end() && it->second->under_way) under_way_.settle();
  if (const auto it = sequences_.find(id); it != sequences_.end() && it->second->running) scheduler_->preempt(*it->second);
}

void Engine::cancel(std::uint64_t id) {
  auto it = sequences_.find(id);
  if (it == sequences_.end()) return untold_.cancel(id);
  if (it->second->under_way) {
    it->second->cut = 0;  // nothing of its plan ends it
    under_way_.settle();
    it = sequences_.find(id);
  }
  untold_.drop(*it->second);
  finish(*it->second, FinishReason::cancelled);
  deliver();
}

void Engine::finish(Sequence& s, FinishReason reason, std::int64_t forget_from) {
  guesses_.end(s);
  scheduler_->remove(s, forget_from);
  counters_.failed_requests += reason == FinishReason::error;
  s.generation.finish = reason;
  auto node = sequences_.extract(s.id);
  untold_.add_end(std::move(node.mapped()));
}

void Engine::deliver() {
  if (delivering_) return;  // the call that is delivering goes on with what was added
  struct Guard {
    bool& flag;
    explicit Guard(bool& f) : flag(f) { flag = true; }
    ~Guard() { flag = false; }
  } guard(delivering_);
  while (!untold_.empty()) {
    const Untold::Event event = untold_.take();
    if (!event.done) {
      event.sequence->on_token(event.sequence->id, event.token);
    } else if (event.done->on_done) {
      event.done->on_done(std::move(event.done->generation));
    }
  }
}

namespace {
// Of rows that are sampled without guesses behind them; those with some were asked for while they were guessed.
void ask_masks(const std::vector<PlannedSlice>& plan, const StepWants& wants, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Sequence& s = *plan[i].sequence;
    if (s.sampling.constraint && plan[i].drafted == 0 && !wants.of(i, Column::sampled).empty()) ask_mask(s, vocabulary);
  }
}

void note_begin(const std::vector<PlannedSlice>& plan) {
  const auto now = std::chrono::steady_clock::now();
  for (const PlannedSlice& p : plan)
    if (GenerationTimes& times = p.sequence->generation.times; times.began == GenerationTimes::Point{}) times.began = now;
}

// What the forward is to tell, and what that needs.
void prepare(const std::vector<PlannedSlice>& plan, const ModelFacts& facts, StepWants& wants) {
  want_as_asked(plan, facts.expert_shape().row(), facts.vocabulary, wants);
  ask_masks(plan, wants, facts.vocabulary);
  note_begin(plan);
}

void refuse_empty(const Scheduler& scheduler) {
  fail(ErrorCode::internal, "no row could be planned for {} running and {} waiting requests", scheduler.running().size(), scheduler.waiting().size());
}
}  // namespace

bool Engine::step() {
  if (delivering_) fail(ErrorCode::internal, "step was called from a callback of the engine");
  deliver();  // what a callback that threw left behind
  under_way_.rethrow();
  if (scheduler_->idle()) return false;
  const TraceSpan span("engine", "engine step");
  if (const bool follows = under_way_.may_follow(options_, stages_, *scheduler_); follows || !under_way_.empty()) {
    advance(follows && (under_way_.empty() || !scheduler_->needs_all()));
    deliver();
    return true;
  }
  const auto began = std::chrono::steady_clock::now();
  const std::vector<PlannedSlice>& planned = scheduler_->plan();
  if (planned.empty()) refuse_empty(*scheduler_);
  guesses_.propose(planned, *scheduler_);
  const auto first_read = std::find_if(planned.begin(), planned.end(), [](const PlannedSlice& p) { return p.read; });
  std::vector<PlannedSlice> computed, reads;
  if (first_read != planned.end()) computed.assign(planned.begin(), first_read), reads.assign(first_read, planned.end());
  const std::vector<PlannedSlice>& plan = reads.empty() ? planned : computed;
  prepare(plan, runtime_.model->facts(), wants_);
  note_begin(reads);
  std::vector<std::string> faults;
  try {
    if (!plan.empty()) guesses_.run(plan, [&] { steps_->run(plan, wants_, result_); });
    // Behind the forward, which may fill pages that stand before these rows.
    for (const PlannedSlice& p : reads) faults.push_back(kept_scores_.read(*steps_, *options_.kept_forwards, *runtime_.model, p, counters_));
  } catch (...) {
    scheduler_->roll_back();
    throw;
  }
  under_way_.ran_alone();
  count_accounts(planned, rows_);
  if (!plan.empty()) {
    count_forward(plan, *runtime_.model, result_.work, counters_);
    absorb(plan);
    steps_->accepted(plan);
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    Sequence& s = *reads[i].sequence;
    s.generation.error = std::move(faults[i]);
    if (s.generation.error.empty()) scheduler_->commit(reads[i]);
    else finish(s, FinishReason::error);
  }
  counters_.drafts = guesses_.counters();
  deliver();
  scheduler_->observe(seconds_since(began));
  return true;
}

void Engine::advance(bool enters) try {
  const auto began = std::chrono::steady_clock::now();
  const bool first = under_way_.empty();
  const PlanUnderWay* next = nullptr;
  if (enters) {
    const std::vector<PlannedSlice>& plan = scheduler_->plan(stages_);
    if (plan.empty() && first) refuse_empty(*scheduler_);
    if (!plan.empty()) {
      guesses_.propose(plan, *scheduler_);
      StepWants wants;
      prepare(plan, runtime_.model->facts(), wants);
      counters_.following_forwards += !first;
      next = &under_way_.enter(plan, std::move(wants));
    }
  }
  const bool through = steps_->turn(first, next ? &next->plan : nullptr, next ? &next->wants : nullptr, result_);
  for (const PlanUnderWay& one : under_way_.all()) count_accounts(one.plan, rows_);
  if (next) {
    const double seconds = seconds_since(began) * stages_;  // of all its turns, about
    guesses_.observe(next->plan, seconds);
    scheduler_->observe(seconds);
  }
  if (!through) return;
  PlanUnderWay done = under_way_.leave();
  wants_ = std::move(done.wants);
  result_.wants = &wants_;
  count_forward(done.plan, *runtime_.model, result_.work, counters_);
  absorb(done.plan, done.read);
  steps_->accepted(done.plan);
  counters_.drafts = guesses_.counters();
} catch (...) {
  under_way_.forget();
  scheduler_->roll_back();
  throw;
}

void Engine::absorb(const std::vector<PlannedSlice>& plan, const std::vector<RowFault>& read) {
  const bool flagged = std::any_of(result_.row_flags.begin(), result_.row_flags.end(), [](std::int32_t f) { return f != 0; }) ||
                       std::any_of(result_.all_sampled.begin(), result_.all_sampled.end(), [](const auto& s) { return s.flags != 0; }) ||
                       std::any_of(read.begin(), read.end(), [](const RowFault& fault) { return fault.flags != 0; });
  if (flagged) fail_flagged(plan, read);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    Sequence& s = *p.sequence;
    if (s.generation.finish != FinishReason::none || !s.running) continue;  // failed just now, or waits again
    take_scores(s, p.begin, i, result_);
    if (const std::span<const float> rows = result_.hidden(i); !rows.empty()) pool_hidden(s, rows, p.begin + p.count, runtime_.model->facts().hidden);
    if (s.cut != Sequence::kNotCut) {
      scheduler_->commit(p);
      continue;
    }
    if (!wants_.of(i, Column::sampled).empty()) {
      const FinishReason end = accept(p, i, p.count);
      scheduler_->commit(p);
      if (end != FinishReason::none) finish(s, end);
      continue;
    }
    scheduler_->commit(p);
    if (p.last) {
      finish(s, pooled_soundly(s) ? FinishReason::length : FinishReason::error);
    }
  }
}

FinishReason Engine::accept(const PlannedSlice& p, std::size_t slice, std::int64_t row) {
  Sequence& s = *p.sequence;
  const std::int64_t right = right_guesses(p, result_.sampled(slice)), first = p.count - 1 - p.drafted;
  const std::uint64_t version = s.adapter ? s.adapter->version : s.weights ? s.weights->version : version_;
  std::vector<GeneratedToken> tokens;
  if (!wants_.of(slice, Column::sampled).empty())
    for (std::int64_t i = 0; i <= right && first + i < row; ++i) tokens.push_back(sampled_token(s, version, slice, static_cast<std::size_t>(i), result_));
  const std::vector<GeneratedToken>& said = s.generation.tokens;
  const std::size_t before = said.size();
  const FinishReason end = accept_tokens(s, tokens);
  guesses_.accept(p, right, static_cast<std::int64_t>(said.size() - before));
  if (before == 0 && !said.empty()) s.generation.times.first_token = std::chrono::steady_clock::now();
  for (std::size_t i = before; i < said.size(); ++i) untold_.add(s, said[i]);
  return end;
}

void Engine::run_until_idle() {
  while (step()) {
  }
}

std::vector<Generation> Engine::generate(std::vector<Request> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) with_context(fmt::format("checking request {}", i), [&] { check_request(requests[i], limits_); });
  std::vector<Generation> results(requests.size());
  std::size_t left = requests.size();
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < requests.size(); ++i)
    ids.push_back(submit(std::move(requests[i]), {}, [&results, &left, i](Generation&& g) {
      results[i] = std::move(g);
      --left;
    }));
  try {
    while (left > 0)
      if (!step()) fail(ErrorCode::internal, "the engine is idle before {} requests are done", left);
  } catch (...) {
    for (std::uint64_t id : ids) cancel(id);
    throw;
  }
  return results;
}

}  // namespace lockstep
