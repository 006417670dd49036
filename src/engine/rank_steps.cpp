#include "engine/rank_steps.h"

#include "base/error.h"
#include "base/log.h"
#include "model/kept_forwards.h"
#include "model/kept_ranks.h"
#include "model/rank_work.h"
#include "parallel/follow_calls.h"
#include "parallel/process_ranks.h"
#include "parallel/thread_ranks.h"

namespace lockstep {

namespace {
RankLayout replica_of(const EngineOptions& options) { return {options.ranks.tp, 1, options.ranks.ep, options.ranks.pp}; }

std::unique_ptr<Ranks> ranks_of(const EngineOptions& options, ProcessMail* lead) {
  if (lead) return std::make_unique<ProcessRanks>(replica_of(options), *lead);
  return std::make_unique<ThreadRanks>(replica_of(options));
}
}  // namespace

RankSteps::RankSteps(Runtime& runtime, const EngineOptions& options, std::unique_ptr<Ranks> ranks)
    : runtime_(runtime),
      pages_(options.cache_pages),
      page_size_(options.page_size),
      lead_(!ranks && replica_of(options).size() > 1 ? options.lead : nullptr),
      ranks_(ranks ? std::move(ranks) : ranks_of(options, lead_)),
      parts_(static_cast<std::size_t>(ranks_->local())),
      most_sequences_(options.max_sequences) {
  keeps_forwards_ =
      options.kept_forwards && ranks_->all_here() && keeps_over_ranks(ranks_->layout(), options.kept_forwards->row_values(), runtime_.backend.device().kind());
  tell(EngineCall::make, [&](ByteWriter& out) { put_engine_options(out, options); });
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    Backend& like = runtime_.backend;
    if (local > 0)
      part.own_runtime = std::make_unique<Runtime>(BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()}, runtime_.model,
                                                   runtime_.profile, runtime_.max_positions);
    part.runtime = local > 0 ? part.own_runtime.get() : &runtime_;
    if (ranks_->size() > 1) part.sharding = std::make_unique<const Sharding>(*runtime_.model, runtime_.profile, ranks_->place(local), HeadStage::first);
    part.runner = std::make_unique<StepRunner>(*part.runtime, options.cache_pages, options.page_size, part.sharding.get());
    if (part.sharding) {
      part.shares = std::make_unique<HeldShares>(*part.runtime, *part.sharding);
      part.runner->set_shares(part.shares.get());
    }
    if (local == 0 && keeps_forwards_) part.runner->set_kept_forwards(options.kept_forwards);
  });
}

RankSteps::~RankSteps() {
  try {
    tell(EngineCall::forget, [](ByteWriter&) {});
  } catch (const std::exception& e) {
    log_warning("the processes that follow were not told that an engine is gone", {{"error", e.what()}});
  }
}

template <class F>
void RankSteps::tell(EngineCall call, const F& put) const {
  if (lead_) tell_call(*lead_, call, put);
}

void RankSteps::meet() {
  ranks_->run([](int) {});
}

void RankSteps::set_weights(std::shared_ptr<const WeightSet> weights) {
  if (ranks_->size() == 1) {
    parts_[0].weights = std::move(weights);
    return;
  }
  send_weights(weights, true);
}

void RankSteps::send_weights(const std::shared_ptr<const WeightSet>& weights, bool current) {
  const Manifest& manifest = runtime_.model->manifest();
  std::shared_ptr<const WeightChanges> changes = weights->changes.lock();
  if (changes && (!held_.contains(changes->from) || held_.at(changes->from).expired())) changes.reset();
  const std::uint64_t from = changes ? changes->from : 0;
  const bool in_place = changes && changes->in_place;
  tell(EngineCall::weights, [&](ByteWriter& out) { out.value(weights->version), out.value(from), out.value(in_place); });
  begin_weights(weights->version, from, in_place);
  if (changes) {
    for (const auto& [id, some] : changes->parameters) {
      tell(EngineCall::changes, [&](ByteWriter& out) { out.value(id), put_changes(out, some); });
      take_changes(id, some);
    }
  } else {
    for (ParameterId id = 0; id < static_cast<ParameterId>(manifest.parameters().size()); ++id) {
      const HostParameter whole = host_parameter(runtime_.backend, weights->parameters[static_cast<std::size_t>(id)].view());
      tell(EngineCall::image, [&](ByteWriter& out) { out.value(id), put_parameter(out, whole); });
      take_parameter(id, whole);
    }
  }
  tell(EngineCall::hold, [&](ByteWriter& out) { out.value(weights->identity), out.value(weights->version), out.value(current); });
  hold_weights(weights, current);
}

void RankSteps::begin_weights(std::uint64_t version, std::uint64_t from, bool in_place) {
  ranks_->run([&](int local) {
    HeldShares& shares = *parts_[static_cast<std::size_t>(local)].shares;
    shares.drop_gone();
    if (from) shares.begin(version, from, in_place);
    else shares.begin(version);
  });
}

void RankSteps::take_parameter(ParameterId id, const HostParameter& whole) {
  ranks_->run([&](int local) { parts_[static_cast<std::size_t>(local)].shares->take(id, whole); });
}

void RankSteps::take_changes(ParameterId id, const ParameterChanges& changes) {
  ranks_->run([&](int local) { parts_[static_cast<std::size_t>(local)].shares->take(id, changes); });
}

void RankSteps::hold_weights(const std::shared_ptr<const WeightSet>& whole, bool current) {
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    const std::shared_ptr<const WeightSet> share = part.shares->hold(whole);
    if (current) part.weights = share;
  });
  if (current) newest_ = whole->identity;
  held_[whole->identity] = whole;
}

void RankSteps::send_adapter(const std::shared_ptr<const AdapterWeights>& whole) {
  WeightImages images;
  for (const Buffer& parameter : whole->parameters) images.push_back(runtime_.backend.stream().read(parameter.view()).get());
  tell(EngineCall::adapter, [&](ByteWriter& out) { put_adapter(out, *whole, images); });
  take_adapter(whole, images);
}

void RankSteps::take_adapter(const std::shared_ptr<const AdapterWeights>& whole, const WeightImages& images) {
  ranks_->run([&](int local) { parts_[static_cast<std::size_t>(local)].shares->hold(whole, images); });
  held_[whole->identity] = whole;
}

void RankSteps::hold(const std::vector<PlannedSlice>& plan) {
  std::vector<std::uint64_t> gone;
  for (const auto& [identity, whole] : held_)
    if (whole.expired()) gone.push_back(identity);
  if (!gone.empty()) {
    tell(EngineCall::gone, [&](ByteWriter& out) { out.values(gone); });
    for (const std::uint64_t identity : gone) held_.erase(identity);
  }
  if (const auto& own = plan[0].sequence->weights; own && !held_.contains(own->identity)) send_weights(own, false);
  for (const PlannedSlice& p : plan)
    if (const auto& own = p.sequence->adapter; own && !held_.contains(own->identity)) send_adapter(own);
}

std::vector<std::shared_ptr<const WeightSet>> RankSteps::mtp_copies(const std::shared_ptr<const WeightSet>& weights) {
  MtpSteps::check(runtime_, weights.get());
  std::vector<std::shared_ptr<const WeightSet>> copies(parts_.size(), weights);
  const Manifest& manifest = runtime_.model->mtp()->manifest();
  const HostCopy whole = parts_.size() > 1 ? host_copy(runtime_.backend, *weights) : HostCopy();
  ranks_->run([&](int local) {  // all processes make this run, however many ranks they have
    const auto at = static_cast<std::size_t>(local);
    if (local > 0) copies[at] = upload(parts_[at].runtime->backend, manifest, whole, runtime_.profile, weights->version);
  });
  return copies;
}

void RankSteps::send_mtp(const WeightSet& weights) {
  MtpSteps::check(runtime_, &weights);
  if (!lead_ || lead_->processes() == 1) return;
  for (const Buffer& parameter : weights.parameters) {
    tell(EngineCall::layer_image, [&](ByteWriter& out) { put_parameter(out, host_parameter(runtime_.backend, parameter.view())); });
    meet();  // so that one at a time is on the way
  }
  tell(EngineCall::layer, [&](ByteWriter& out) { out.value(weights.version); });
}

void RankSteps::set_mtp(std::shared_ptr<const WeightSet> weights) {
  send_mtp(*weights);
  const auto copies = mtp_copies(weights);
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    if (part.sharding && !part.sharding->first_stage()) return;  // it has neither embedding nor head
    const std::shared_ptr<const WeightSet>& own = copies[static_cast<std::size_t>(local)];
    if (part.mtp) return part.mtp->set_weights(own);
    part.mtp = std::make_unique<MtpSteps>(*part.runtime, own, pages_, page_size_, most_sequences_, part.sharding.get(), part.shares.get());
    part.runner->set_mtp(part.mtp.get());
  });
}

bool RankSteps::set_mtp_weights(std::shared_ptr<const WeightSet> weights) {
  if (!parts_[0].mtp->differs(*weights)) return false;
  set_mtp(std::move(weights));
  return true;
}

void RankSteps::accepted(const std::vector<PlannedSlice>& plan) {
  if (has_mtp()) store(MtpSteps::states_of(plan, page_size_));
}

void RankSteps::store(const std::vector<MtpSteps::PageState>& states) {
  tell(EngineCall::states, [&](ByteWriter& out) { out.values(states); });
  ranks_->run([&](int local) {
    if (MtpSteps* mtp = parts_[static_cast<std::size_t>(local)].mtp.get()) mtp->store(states);
  });
}

std::vector<std::vector<std::int32_t>> RankSteps::guess(std::span<Sequence* const> sequences, std::int64_t tokens) {
  const WeightSet* own = sequences.front()->weights.get();
  tell(EngineCall::guess, [&](ByteWriter& out) { put_guess(out, sequences, tokens); });
  std::vector<std::vector<std::int32_t>> said;
  ranks_->run([&](int local) {
    const Rank& part = parts_[static_cast<std::size_t>(local)];
    if (!part.mtp) return;
    auto of_rank = part.mtp->guess(!own ? *part.weights : part.shares ? part.shares->of(*own) : *own, sequences, tokens);
    if (local == 0) said = std::move(of_rank);
  });
  return said;
}

bool RankSteps::turn(bool first, const std::vector<PlannedSlice>* plan, const StepWants* wants, StepResult& result) {
  if (plan) hold(*plan);
  tell(EngineCall::turn, [&](ByteWriter& out) {
    out.value(first);
    out.value(plan != nullptr);
    if (plan) put_step(out, *plan, *wants);
  });
  std::vector<StepResult> others(parts_.size());
  bool through = false;
  ranks_->run([&](int local) {
    const Rank& part = parts_[static_cast<std::size_t>(local)];
    part.shares->drop_gone();
    StepResult& told = local == 0 ? result : others[static_cast<std::size_t>(local)];
    bool done = false;
    if (plan) {
      const WeightSet* own = plan->front().sequence->weights.get();
      const StepRunner::Entering next{own ? part.shares->of(*own) : *part.weights, *plan, *wants};
      done = part.runner->turn(first, &next, told);
    } else {
      done = part.runner->turn(first, nullptr, told);
    }
    if (local == 0) through = done;
  });
  if (through) result.work = work_of_ranks(*ranks_, [&](int local) { return local == 0 ? result.work : others[static_cast<std::size_t>(local)].work; });
  return through;
}

void RankSteps::run(const std::vector<PlannedSlice>& plan, const StepWants& wants, StepResult& result, RowSource* kept) {
  const WeightSet* own = plan[0].sequence->weights.get();
  if (ranks_->size() == 1) return parts_[0].runner->run(own ? *own : *parts_[0].weights, plan, wants, result, 0, kept);
  if (kept) fail(ErrorCode::internal, "rows that were kept are read on {} ranks, allowed is 1", ranks_->size());
  hold(plan);
  std::vector<StepResult> others(parts_.size());
  tell(EngineCall::step, [&](ByteWriter& out) { put_step(out, plan, wants); });
  ranks_->run([&](int local) {
    const Rank& part = parts_[static_cast<std::size_t>(local)];
    part.shares->drop_gone();
    part.runner->run(own ? part.shares->of(*own) : *part.weights, plan, wants, local == 0 ? result : others[static_cast<std::size_t>(local)],
                     own ? own->identity : newest_);
  });
  result.work = work_of_ranks(*ranks_, [&](int local) { return local == 0 ? result.work : others[static_cast<std::size_t>(local)].work; });
}

}  // namespace lockstep
