#include "train/base_rank.h"

#include <algorithm>

#include "base/byte_record.h"
#include "train/kept_forward.h"
#include "train/rank_record.h"

namespace lockstep {

namespace {
// Passes are kept by one rank with the whole model alone.
TrainerOptions options_of_base(TrainerOptions options, const RankPlace& place, Backend& backend) {
  if (place.layout.size() > 1) options.kept = nullptr;
  options.kept_forwards = kept_over_ranks(options, place.layout, backend);
  return options;
}

// Bit for bit, as they lie in memory: numbers of few bits may be a file's own, which no quantiser makes of the numbers that they stand for.
std::shared_ptr<const WeightSet> copy_of_base(Backend& backend, const WeightSet& whole) {
  auto copy = std::make_shared<WeightSet>();
  copy->version = whole.version;
  for (const Buffer& one : whole.parameters) {
    const View& from = one.view();
    copy->parameters.push_back(backend.device().allocate(from.dtype, from.rows, from.cols, MemoryCategory::weights));
    backend.stream().copy(copy->parameters.back().view(), from);
  }
  return copy;
}

// The rows of them that this rank keeps.
std::shared_ptr<const WeightSet> rows_of_base(Backend& backend, const RankRows& rows, const Profile& profile, const WeightSet& from) {
  auto kept = std::make_shared<WeightSet>();
  kept->version = from.version;
  for (std::size_t i = 0; i < from.parameters.size(); ++i) {
    const Buffer& copy = kept->parameters.emplace_back(rows.allocate_copy(i, &profile));
    if (copy.view().size() > 0) backend.stream().copy(copy.view(), rows.own(i, from.parameters[i].view()));
  }
  return kept;
}

std::shared_ptr<const WeightSet> share_of_base(Runtime& runtime, bool has_whole, const std::shared_ptr<const WeightSet>& whole, const HostCopy& on_host,
                                               const Sharding* sharding, const RankRows& rows) {
  Backend& backend = runtime.backend;
  if (!sharding && rows.shards_weights()) return rows_of_base(backend, rows, runtime.profile, *whole);
  if (!sharding) return has_whole ? whole : copy_of_base(backend, *whole);
  const auto share = upload(backend, sharding->manifest(), share_of(on_host, *sharding, runtime.profile), runtime.profile, whole->version);
  return rows.shards_weights() ? rows_of_base(backend, rows, runtime.profile, *share) : share;
}

// What failed on one rank has failed on all: of several errors the first rank's.
void share_failures(Communicator& world, JobFailures& failures) {
  ByteWriter mine;
  for (const std::optional<Error>& failure : failures) {
    mine.value(failure.has_value());
    if (failure) mine.value(failure->code()), mine.text(failure->what());
  }
  const std::vector<std::string> all = world.gather_host(mine.bytes());
  for (std::size_t rank = all.size(); rank-- > 0;) {
    ByteReader theirs(all[rank]);
    for (std::optional<Error>& failure : failures) {
      if (!theirs.value<bool>()) continue;
      const auto code = theirs.value<ErrorCode>();
      failure = Error(code, theirs.text());
    }
  }
}
}  // namespace

BaseRank::BaseRank(Runtime& runtime, bool has_whole, const std::shared_ptr<const WeightSet>& whole, const HostCopy& on_host, const TrainerOptions& options,
                   const RankPlace& place)
    : runtime_(runtime),
      place_(place),
      micro_batch_(options.micro_batch),
      sharding_(place.layout.replica() > 1 ? std::make_unique<const Sharding>(*runtime.model, runtime.profile, place) : nullptr),
      rows_(runtime.backend, sharding_ ? sharding_->manifest() : runtime.model->manifest(), place, &runtime.profile),
      weights_(share_of_base(runtime, has_whole, whole, on_host, sharding_.get(), rows_)),
      whole_(whole->identity),
      gathered_(rows_.shards_weights() ? std::make_unique<GatheredWeights>(runtime.backend, *runtime.model, runtime.profile, rows_, sharding_.get()) : nullptr),
      pass_(runtime, options_of_base(options, place, runtime.backend), sharding_.get(), place.context) {}

namespace {
using Turn = std::vector<std::pair<std::size_t, PassPart>>;  // jobs of one pass
}  // namespace

// The most passes that a data-parallel rank has.
std::size_t BaseRank::most_turns(const std::vector<Job>& jobs, const std::vector<std::vector<DealtData>>& dealt) const {
  std::size_t most = 0;
  for (int rank = 0; rank < place_.layout.data(); ++rank) {
    std::size_t cut = 0, whole = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (dealt[j].empty()) continue;
      const std::vector<PassPart> parts = pass_parts(*jobs[j].data, dealt[j][static_cast<std::size_t>(rank)], micro_batch_, place_.layout.pp);
      const auto pieces = static_cast<std::size_t>(std::count_if(parts.begin(), parts.end(), [](const PassPart& part) { return part.cut; }));
      cut += pieces;
      whole = std::max(whole, parts.size() - pieces);
    }
    most = std::max(most, cut + whole);
  }
  return most;
}

std::vector<BaseRank::Outcome> BaseRank::run(const ForwardPass::Settings& settings, const std::vector<Job>& jobs, JobFailures* failures) {
  const auto failed = [&](std::size_t j) { return failures && (*failures)[j]; };
  std::vector<Outcome> out(jobs.size());
  std::vector<std::vector<DealtData>> dealt(jobs.size());
  std::vector<Turn> turns;  // pieces first, a job at a time
  std::vector<std::vector<PassPart>> whole(jobs.size());
  std::size_t passes = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (!jobs[j].data || failed(j)) continue;
    out[j].result.make_room(jobs[j].data->size(), jobs[j].loss->kind);
    if (jobs[j].normaliser == 0) continue;
    dealt[j] = deal_sequences(*jobs[j].data, place_.layout);
    for (PassPart& part : pass_parts(*jobs[j].data, dealt[j][static_cast<std::size_t>(place_.data_rank())], micro_batch_, place_.layout.pp)) {
      if (part.cut) turns.push_back({{j, std::move(part)}});
      else whole[j].push_back(std::move(part));
    }
    passes = std::max(passes, whole[j].size());
  }
  for (std::size_t pass = 0; pass < passes; ++pass) {
    Turn& turn = turns.emplace_back();
    for (std::size_t j = 0; j < jobs.size(); ++j)
      if (pass < whole[j].size()) turn.emplace_back(j, std::move(whole[j][pass]));
  }
  // What fails here is left out from then on; but stages of a pipeline, and ranks that have
  // pieces of a sequence, learn of it at the end alone, and go on with the same jobs.
  const bool alone = place_.layout.pp == 1 && place_.layout.cp == 1;
  const auto kept_as = [&](const Job& job) {
    return job.adapter && job.whole_adapter == 0 ? KeptForwards::Root() : KeptForwards::Root{whole_, job.whole_adapter, job.owner};
  };
  const auto jobs_of = [&](std::size_t pass) {
    std::vector<ForwardPass::Job> now;
    if (pass >= turns.size()) return now;
    for (const auto& [j, part] : turns[pass])
      if (!(alone && failed(j)))
        now.push_back({jobs[j].data, jobs[j].loss, jobs[j].normaliser, part.sequences, &out[j].result, &out[j].sums, jobs[j].adapter, jobs[j].gradients,
                       failures ? &(*failures)[j] : nullptr, part.cut, nullptr, kept_as(jobs[j])});
    return now;
  };
  if (!gathered_) {
    pass_.run(*weights_, settings, turns.size(), jobs_of);
  } else {
    const GatheredWeights::InUse use(*gathered_, *weights_, settings.gradients);
    ForwardPass::Settings gathering = settings;
    gathering.gathered = gathered_.get();
    pass_.run(gathered_->whole(), gathering, most_turns(jobs, dealt), jobs_of);
    gathered_->finish();
  }
  if (failures && place_.world) share_failures(*place_.world, *failures);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (failed(j)) {
      out[j] = {};
      continue;
    }
    if (dealt[j].empty()) continue;
    const std::vector<TrainSequence>& data = *jobs[j].data;
    if (place_.layout.pp > 1)
      join_stages(*place_.stages, sharding_->stages() - 1, dealt[j][static_cast<std::size_t>(place_.data_rank())], data, out[j].result, out[j].sums);
    if (place_.layout.data() > 1) join_records(*place_.data, dealt[j], data, out[j].result, out[j].sums);
    count_moved(out[j].sums, out[j].result);
  }
  return out;
}

}  // namespace lockstep
