#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"

namespace lockstep {

namespace {
std::int64_t resolve_pages(const Runtime& runtime, const EngineOptions& o) {
  if (o.cache_pages > 0) return o.cache_pages;
  const std::int64_t page_bytes =
      KvCache::bytes_a_position(runtime.model->cache_shapes(), runtime.profile) * o.page_size;
  const std::int64_t pages = o.cache_bytes / std::max<std::int64_t>(page_bytes, 1);
  if (pages < 1)
    fail(ErrorCode::invalid_argument, "cache_bytes is {}, allowed is {} (one page of {} positions) or more",
         o.cache_bytes, page_bytes, o.page_size);
  const std::int64_t pages_a_sequence = (runtime.max_positions + o.page_size - 1) / o.page_size;
  return std::min(pages, o.max_sequences * pages_a_sequence);
}

constexpr std::int32_t kNothingAllowed = 1 << 4;

std::string describe_fault(const Sequence& s, std::int32_t flags, std::int64_t position) {
  if (flags == kNothingAllowed && !s.constraint_error.empty())
    return fmt::format("the constraint failed at token {}: {}", s.generation.tokens.size(), s.constraint_error);
  if (flags == kNothingAllowed)
    return fmt::format("the constraint allows no token after {} generated ones", s.generation.tokens.size());
  constexpr std::string_view places[] = {"the indexer's scores", "the router's scores", "a log-probability",
                                         "the logits"};
  std::string text;
  for (int bit = 0; bit < 4; ++bit)
    if (flags & 1 << bit) text += (text.empty() ? "" : ", ") + std::string(places[bit]);
  if (text.empty()) text = fmt::format("flags {}", flags);
  return fmt::format("a NaN or an infinity in {} at position {} of the request", text, position);
}
}  // namespace

Engine::Engine(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const EngineOptions& options)
    : runtime_(runtime), options_(options) {
  check_options(options);
  options_.cache_pages = resolve_pages(runtime, options);
  limits_ = {runtime.model->facts().vocabulary, runtime.max_positions, options_.cache_pages * options_.page_size};
  scheduler_ = std::make_unique<Scheduler>(options_, options_.cache_pages, counters_);
  steps_ = std::make_unique<RankSteps>(runtime, options_);
  set_weights(std::move(weights));
}

Engine::~Engine() = default;

void Engine::set_weights(std::shared_ptr<const WeightSet> weights) {
  if (!weights) fail(ErrorCode::invalid_argument, "weights is null, allowed is a set of weights");
  check_weights(*weights, *runtime_.model, runtime_.profile);
  if (weights == weights_.lock()) return;
  weights_ = weights;
  version_ = weights->version;
  scheduler_->set_weights(weights->identity);
  steps_->set_weights(std::move(weights));
}

std::uint64_t Engine::submit(Request request, OnToken on_token, OnDone on_done) {
  return add(std::move(request), std::move(on_token), std::move(on_done)).id;
}

Sequence& Engine::add(Request request, OnToken on_token, OnDone on_done) {
  check_request(request, limits_);
  if (request.weights) {
    if (options_.ranks.size() > 1)
      fail(ErrorCode::unsupported, "a request brings weights of its own, and {} ranks share the model; allowed is one rank", options_.ranks.size());
    check_weights(*request.weights, *runtime_.model, runtime_.profile);
  }
  if (request.adapter) {
    if (options_.ranks.size() > 1)
      fail(ErrorCode::unsupported, "a request has an adapter, and {} ranks share the model; allowed is one rank", options_.ranks.size());
    request.adapter->layout->check_fits(runtime_.model->manifest());
  }
  if (request.experts && runtime_.model->facts().expert_shape().row() == 0)
    fail(ErrorCode::unsupported, "experts are asked for, and the model ({}) has none", runtime_.model->family());
  auto s = std::make_unique<Sequence>();
  s->id = s->generation.id = next_id_++;
  s->generation.times.taken = std::chrono::steady_clock::now();
  s->sampling = std::move(request.sampling);
  s->weights = std::move(request.weights);
  s->adapter = std::move(request.adapter);
  s->prefix_owner = request.prefix_owner;
  s->tells_experts = request.experts;
  s->pooling = request.pooling;
  if (s->pooling == Pooling::mean) s->most_hit_pages = 0;  // a cached position has no hidden state to add
  s->tokens = std::move(request.prompt);
  s->prompt_length = s->decode_from = s->known();
  s->on_token = std::move(on_token);
  s->on_done = std::move(on_done);
  if (request.prompt_logprobs) {
    s->scores_prompt = true;
    s->most_hit_pages = 0;  // a cached position has no row to score
    s->generation.prompt_logprobs.resize(static_cast<std::size_t>(s->prompt_length - 1));
    if (tells_top(*s)) s->generation.prompt_top_logprobs.resize(s->generation.prompt_logprobs.size());
    s->prompt_targets = std::move(request.prompt_targets);
    s->prompt_targets_per_row = request.prompt_targets_per_row;
    s->prompt_draws = request.prompt_draws;
    if (request.experts) s->generation.prompt_experts.resize(s->generation.prompt_logprobs.size());
    s->generation.prompt_target_logprobs.resize(s->prompt_targets.size());
    s->generation.prompt_draws.resize(s->generation.prompt_logprobs.size() * static_cast<std::size_t>(s->prompt_draws));
  }
  s->adjustments.begin(s->sampling, s->tokens);
  Sequence& added = *s;
  sequences_.emplace(added.id, std::move(s));
  scheduler_->add(added);
  return added;
}

void Engine::cancel(std::uint64_t id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  finish(*it->second, FinishReason::cancelled);
  deliver();
}

void Engine::finish(Sequence& s, FinishReason reason, std::int64_t forget_from) {
  scheduler_->remove(s, forget_from);
  s.generation.finish = reason;
  auto node = sequences_.extract(s.id);
  events_.push_back({&s, {}, std::move(node.mapped())});
}

void Engine::deliver() {
  if (delivering_) return;  // the call that is delivering goes on with what was added
  struct Guard {
    bool& flag;
    explicit Guard(bool& f) : flag(f) { flag = true; }
    ~Guard() { flag = false; }
  } guard(delivering_);
  while (!events_.empty()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    if (!event.done) {
      event.sequence->on_token(event.sequence->id, event.token);
    } else if (event.done->on_done) {
      event.done->on_done(std::move(event.done->generation));
    }
  }
}

bool Engine::step() {
  if (delivering_) fail(ErrorCode::internal, "step was called from a callback of the engine");
  deliver();  // what a callback that threw left behind
  if (scheduler_->idle()) return false;
  const std::vector<PlannedSlice>& plan = scheduler_->plan();
  if (plan.empty())
    fail(ErrorCode::internal, "no row could be planned for {} running and {} waiting requests", running(), waiting());
  ask_constraints(plan);
  const auto now = std::chrono::steady_clock::now();
  for (const PlannedSlice& p : plan)
    if (GenerationTimes& times = p.sequence->generation.times; times.began == GenerationTimes::Point{}) times.began = now;
  try {
    steps_->run(plan, result_);
    counters_.own_weights_forwards += plan[0].sequence->weights != nullptr;
    count_adapters(plan);
  } catch (...) {
    scheduler_->roll_back();
    throw;
  }
  count_work(plan);
  absorb(plan);
  deliver();
  return true;
}

void Engine::run_until_idle() {
  while (step()) {
  }
}

void Engine::count_work(const std::vector<PlannedSlice>& plan) {
  counters_.work += result_.work;
  for (const PlannedSlice& p : plan) counters_.work.expect(*runtime_.model, p.begin, p.begin + p.count);
}

void Engine::count_adapters(const std::vector<PlannedSlice>& plan) {
  const AdapterWeights* adapter = nullptr;
  std::int64_t adapters = 0;
  for (const PlannedSlice& p : plan) {
    if (!p.sequence->adapter) continue;
    counters_.adapter_rows += p.count;
    adapters += p.sequence->adapter.get() != adapter;
    adapter = p.sequence->adapter.get();
  }
  counters_.most_adapters = std::max(counters_.most_adapters, adapters);
}

void Engine::ask_constraints(const std::vector<PlannedSlice>& plan) {
  const auto words = static_cast<std::size_t>((limits_.vocabulary + 31) / 32);
  for (const PlannedSlice& p : plan) {
    Sequence& s = *p.sequence;
    if (!samples(p) || !s.sampling.constraint || s.mask_ready) continue;
    s.mask.assign(words, 0);
    s.mask_ready = true;
    try {
      s.sampling.constraint->allowed(s.mask);
    } catch (const std::exception& e) {
      s.mask.assign(words, 0);
      s.constraint_error = e.what();
    }
  }
}

void Engine::absorb(const std::vector<PlannedSlice>& plan) {
  const bool flagged =
      std::any_of(result_.row_flags.begin(), result_.row_flags.end(), [](std::int32_t f) { return f != 0; }) ||
      std::any_of(result_.sampled.begin(), result_.sampled.end(), [](const auto& s) { return s.flags != 0; });
  if (flagged) fail_flagged(plan);
  std::size_t sampled = 0, scored = 0, sampled_top = 0, prompt_top = 0, drawn = 0, sampled_experts = 0, prompt_experts = 0, pooled = 0;
  for (const PlannedSlice& p : plan) {
    const bool has_sample = samples(p);
    const auto scores = static_cast<std::size_t>(scored_rows(p));
    Sequence& s = *p.sequence;
    const bool tells = tells_top(s);
    const std::size_t sample_at = sampled, score_at = scored, sampled_top_at = sampled_top, prompt_top_at = prompt_top, drawn_at = drawn,
                      sampled_experts_at = sampled_experts, prompt_experts_at = prompt_experts;
    const auto columns = static_cast<std::size_t>(scored_columns(s)), draws = static_cast<std::size_t>(s.prompt_draws);
    sampled += has_sample;
    scored += scores * columns;
    drawn += scores * draws;
    sampled_top += tells && has_sample;
    prompt_top += tells ? scores : 0;
    sampled_experts += s.tells_experts && has_sample;
    prompt_experts += s.tells_experts ? scores : 0;
    const std::size_t pooled_at = pooled;
    pooled += pooled_rows(p) > 0;
    if (s.generation.finish != FinishReason::none) continue;  // failed just now
    for (std::size_t i = 0; i < scores; ++i) {
      const std::size_t position = static_cast<std::size_t>(p.begin) + i;
      const float* row = result_.prompt_logprobs.data() + score_at + i * columns;
      s.generation.prompt_logprobs[position] = row[0];
      std::copy_n(row + 1, columns - 1, s.generation.prompt_target_logprobs.data() + position * (columns - 1));
      std::copy_n(result_.drawn.data() + drawn_at + i * draws, draws, s.generation.prompt_draws.data() + position * draws);
    }
    for (std::size_t i = 0; tells && i < scores; ++i)
      s.generation.prompt_top_logprobs[static_cast<std::size_t>(p.begin) + i] =
          std::move(result_.prompt_top[prompt_top_at + i]);
    for (std::size_t i = 0; s.tells_experts && i < scores; ++i)
      s.generation.prompt_experts[static_cast<std::size_t>(p.begin) + i] = std::move(result_.prompt_experts[prompt_experts_at + i]);
    if (pooled > pooled_at) pool(s, result_.pooled[pooled_at], p.begin + p.count);
    scheduler_->commit(p);
    if (has_sample)
      accept(s, result_.sampled[sample_at], {sampled_top_at, sampled_experts_at});
    else if (p.last) finish(s, pooled_soundly(s) ? FinishReason::length : FinishReason::error);
  }
}

// Adds hidden states of the positions before `end`. In double and position by position, so that neither chunks nor neighbours show.
void Engine::pool(Sequence& s, const std::vector<float>& rows, std::int64_t end) {
  const auto hidden = static_cast<std::size_t>(runtime_.model->facts().hidden);
  s.pooled_sum.resize(hidden);
  std::int64_t position = end - static_cast<std::int64_t>(rows.size() / hidden);
  if (s.pooling == Pooling::last) position = s.pooled_positions = 0;
  for (const float* row = rows.data(); row != rows.data() + rows.size(); row += hidden, ++position) {
    if (position < s.pooled_positions) continue;
    ++s.pooled_positions;
    for (std::size_t i = 0; i < hidden; ++i) s.pooled_sum[i] += row[i];
  }
}

// The sum as Generation::pooled; false: there are NaNs or infinities, which the request's error tells.
bool Engine::pooled_soundly(Sequence& s) {
  for (const double sum : s.pooled_sum) s.generation.pooled.push_back(static_cast<float>(sum / static_cast<double>(s.pooled_positions)));
  if (std::all_of(s.generation.pooled.begin(), s.generation.pooled.end(), [](float x) { return std::isfinite(x); })) return true;
  s.generation.error = "a NaN or an infinity in the hidden states of the request";
  ++counters_.failed_requests;
  return false;
}

void Engine::accept(Sequence& s, const StepResult::Sampled& sampled, const Place& place) {
  if (s.sampling.constraint) {
    s.mask_ready = false;
    try {
      s.sampling.constraint->accept(sampled.token);
    } catch (const std::exception& e) {
      s.generation.error = fmt::format("the constraint failed at token {}: {}", s.generation.tokens.size(), e.what());
      ++counters_.failed_requests;
      return finish(s, FinishReason::error);
    }
  }
  s.adjustments.accept(sampled.token);
  s.tokens.push_back(sampled.token);
  const std::uint64_t version = s.adapter ? s.adapter->version : s.weights ? s.weights->version : version_;
  s.generation.tokens.push_back({sampled.token, sampled.raw_logprob, sampled.sampling_logprob, version,
                                 tells_top(s) ? std::move(result_.sampled_top[place.top]) : std::vector<TokenLogprob>(),
                                 s.tells_experts ? std::move(result_.sampled_experts[place.experts]) : std::vector<std::uint16_t>()});
  const GeneratedToken& token = s.generation.tokens.back();
  if (s.generation.tokens.size() == 1) s.generation.times.first_token = std::chrono::steady_clock::now();
  ++counters_.sampled_tokens;
  counters_.mixed_version_tokens += s.mixed_versions;
  if (s.on_token) events_.push_back({&s, token, nullptr});
  const std::vector<std::int32_t>& stops = s.sampling.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token.id) != stops.end()) finish(s, FinishReason::stop);
  else if (static_cast<std::int32_t>(s.generation.tokens.size()) >= s.sampling.max_tokens)
    finish(s, FinishReason::length);
}

// Ends the requests that have a flagged row, and those that read a page which such a row wrote: the same tokens in the
// same order, so they would have flagged it themselves.
void Engine::fail_flagged(const std::vector<PlannedSlice>& plan) {
  struct Fault {
    std::int64_t position = -1;
    std::int32_t flags = 0;
  };
  std::unordered_map<std::int32_t, Fault> bad_pages;
  std::vector<Fault> faults(plan.size());
  std::size_t row = 0, sampled = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    for (std::int64_t at = p.begin; at < p.begin + p.count; ++at, ++row) {
      if (result_.row_flags[row] == 0) continue;
      const Fault fault{at, result_.row_flags[row]};
      if (faults[i].flags == 0) faults[i] = fault;
      bad_pages.emplace(p.sequence->pages[static_cast<std::size_t>(at / options_.page_size)], fault);
    }
    if (samples(p) && result_.sampled[sampled++].flags != 0 && faults[i].flags == 0)
      faults[i] = {p.begin + p.count - 1, result_.sampled[sampled - 1].flags};
  }
  for (std::size_t i = 0; i < plan.size(); ++i)
    for (std::int32_t page : plan[i].sequence->pages) {
      const auto bad = bad_pages.find(page);
      if (bad != bad_pages.end() && (faults[i].flags == 0 || bad->second.position < faults[i].position))
        faults[i] = bad->second;
    }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (faults[i].flags == 0) continue;
    Sequence& s = *plan[i].sequence;
    s.generation.error = describe_fault(s, faults[i].flags, faults[i].position);
    ++counters_.failed_requests;
    finish(s, FinishReason::error, faults[i].position);
  }
}

std::vector<Generation> Engine::generate(std::vector<Request> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    with_context(fmt::format("checking request {}", i), [&] { check_request(requests[i], limits_); });
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
