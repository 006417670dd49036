#include "engine/rank_steps.h"

#include "base/error.h"
#include "base/log.h"
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
  tell(EngineCall::make, [&](ByteWriter& out) { put_engine_options(out, options); });
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    Backend& like = runtime_.backend;
    if (local > 0)
      part.runtime = std::make_unique<Runtime>(BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()}, runtime_.model,
                                               runtime_.profile, runtime_.max_positions);
    if (ranks_->size() > 1) part.sharding = std::make_unique<const Sharding>(*runtime_.model, runtime_.profile, ranks_->place(local), HeadStage::first);
    part.runner = std::make_unique<StepRunner>(runtime_of(local), options.cache_pages, options.page_size, part.sharding.get());
    if (part.sharding) {
      part.shares = std::make_unique<HeldShares>(runtime_of(local), *part.sharding);
      part.runner->set_shares(part.shares.get());
    }
    if (ranks_->size() == 1) part.runner->set_kept_forwards(options.kept_forwards);
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
  // A device that only counts has no values, and takes no memory of the host for them.
  const WeightImages whole = runtime_.backend.device().counting() ? WeightImages(runtime_.model->manifest().parameters().size())
                                                                  : weight_images(runtime_.backend, runtime_.model->manifest(), *weights, runtime_.profile);
  if (lead_ && lead_->processes() > 1)
    for (std::size_t p = 0; p < whole.size(); ++p) {
      tell(EngineCall::image, [&](ByteWriter& out) { out.value(static_cast<std::uint64_t>(p)), out.values(whole[p]); });
      meet();  // so that one at a time is on the way
    }
  tell(EngineCall::weights, [&](ByteWriter& out) { out.value(weights->identity), out.value(weights->version), out.value(current); });
  take_weights(weights, whole, current);
}

void RankSteps::take_weights(const std::shared_ptr<const WeightSet>& whole, const WeightImages& images, bool current) {
  if (const std::size_t wanted = runtime_.model->manifest().parameters().size(); images.size() != wanted)
    fail(ErrorCode::internal, "{} parameters of {} have come", images.size(), wanted);
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    part.shares->drop_gone();
    const std::shared_ptr<const WeightSet> share = part.shares->hold(whole, images);
    if (current) part.weights = share;
  });
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

std::vector<std::shared_ptr<const WeightSet>> RankSteps::mtp_copies(std::shared_ptr<const WeightSet> weights) {
  std::vector<std::shared_ptr<const WeightSet>> copies(parts_.size(), weights);
  const MtpLayer* layer = runtime_.model->mtp();
  const bool fits = layer && weights->parameters.size() == layer->manifest().parameters().size();  // MtpSteps refuses others
  if (parts_.size() == 1 || !fits) return copies;
  const Manifest& manifest = layer->manifest();
  const WeightImages whole =
      runtime_.backend.device().counting() ? WeightImages(manifest.parameters().size()) : weight_images(runtime_.backend, manifest, *weights, runtime_.profile);
  ranks_->run([&](int local) {
    if (local > 0) copies[static_cast<std::size_t>(local)] = make_weight_set(runtime_of(local).backend, manifest, whole, runtime_.profile, weights->version);
  });
  return copies;
}

void RankSteps::set_mtp(std::shared_ptr<const WeightSet> weights) {
  if (ranks_->size() > ranks_->local())
    fail(ErrorCode::unsupported, "a layer of multi-token prediction is to draft, and {} ranks in several processes share the model; allowed is one process",
         ranks_->size());
  const auto copies = mtp_copies(std::move(weights));
  ranks_->run([&](int local) {
    Rank& part = parts_[static_cast<std::size_t>(local)];
    if (part.sharding && !part.sharding->first_stage()) return;  // it has neither embedding nor head
    part.mtp = std::make_unique<MtpSteps>(runtime_of(local), copies[static_cast<std::size_t>(local)], pages_, page_size_, most_sequences_, part.sharding.get());
    part.runner->set_mtp(part.mtp.get());
  });
}

bool RankSteps::set_mtp_weights(std::shared_ptr<const WeightSet> weights) {
  if (!parts_[0].mtp->differs(*weights)) return false;
  const auto copies = mtp_copies(std::move(weights));
  ranks_->run([&](int local) {
    if (MtpSteps* mtp = parts_[static_cast<std::size_t>(local)].mtp.get()) mtp->set_weights(copies[static_cast<std::size_t>(local)]);
  });
  return true;
}

void RankSteps::accepted(const std::vector<PlannedSlice>& plan) {
  if (!has_mtp()) return;
  ranks_->run([&](int local) {
    if (MtpSteps* mtp = parts_[static_cast<std::size_t>(local)].mtp.get()) mtp->keep(plan);
  });
}

std::vector<std::vector<std::int32_t>> RankSteps::guess(std::span<Sequence* const> sequences, std::int64_t tokens) {
  const WeightSet* own = sequences.front()->weights.get();
  std::vector<std::vector<std::int32_t>> said;
  ranks_->run([&](int local) {
    const Rank& part = parts_[static_cast<std::size_t>(local)];
    if (!part.mtp) return;
    auto of_rank = part.mtp->guess(!own ? *part.weights : part.shares ? part.shares->of(*own) : *own, sequences, tokens);
    if (local == 0) said = std::move(of_rank);
  });
  return said;
}

void RankSteps::run(const std::vector<PlannedSlice>& plan, const StepWants& wants, StepResult& result) {
  const WeightSet* own = plan[0].sequence->weights.get();
  if (ranks_->size() == 1) return parts_[0].runner->run(own ? *own : *parts_[0].weights, plan, wants, result);
  hold(plan);
  std::vector<StepResult> others(parts_.size());
  tell(EngineCall::step, [&](ByteWriter& out) { put_step(out, plan, wants); });
  ranks_->run([&](int local) {
    const Rank& part = parts_[static_cast<std::size_t>(local)];
    part.shares->drop_gone();
    part.runner->run(own ? part.shares->of(*own) : *part.weights, plan, wants, local == 0 ? result : others[static_cast<std::size_t>(local)]);
  });
  result.work = work_of_ranks(*ranks_, [&](int local) { return local == 0 ? result.work : others[static_cast<std::size_t>(local)].work; });
}

}  // namespace lockstep
