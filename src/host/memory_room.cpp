#include "host/memory_room.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/training_checkpoint.h"
#include "host/batch_pieces.h"
#include "tensor/memory_pool.h"

namespace lockstep {

namespace {
constexpr std::int64_t kMostResultBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostMetadata = std::int64_t{256} << 20;
constexpr std::int64_t kIdleBytes = std::int64_t{64} << 20;  // a host's images that are larger take the place of what lies idle in pools

struct TrainingRemedy {
  const char *category, *remedy;
};
constexpr TrainingRemedy kTrainingRemedies[] = {
    {"models", "those that do not run go to disk by themselves"},
    {"gradients", "they go to disk with their models"},
    {"kept forwards", "they go by themselves (--reuse-megabytes, --keep-forward-megabytes)"},
    {"losses", "they go when the datum is computed; shorter data take less, and so do losses of fewer and smaller tensors"},
    {"samplers", "those that no request uses go by themselves (--sampler-megabytes)"},
};
}  // namespace

std::int64_t most_result_bytes(const TrainingBase& base) { return base.ledger ? std::min(kMostResultBytes, base.ledger->total() / 16) : kMostResultBytes; }
std::int64_t most_metadata_bytes(const TrainingBase& base) {
  return base.ledger && base.ledger->total() < MemoryLedger::kUnlimited ? std::min(kMostMetadata, base.ledger->total() / 64) : kMostMetadata;
}

TurnRoom& TurnRoom::operator=(TurnRoom&& other) noexcept {
  if (this == &other) return *this;
  leave();
  memory_ = std::exchange(other.memory_, nullptr);
  model_ = other.model_;
  bytes_ = other.bytes_;
  return *this;
}

void TurnRoom::leave() noexcept {
  if (!memory_) return;
  MemoryRoom::Books& books = memory_->books_.at(OnExecutor(*memory_->commons_.base->executor));
  books.turn_used -= bytes_;
  books.turn_extra.try_resize(std::max<std::int64_t>(0, books.turn_used - memory_->turn_reserve_.bytes()));  // always granted: the claim gets smaller
  books.busy.erase(std::find(books.busy.begin(), books.busy.end(), model_));
  memory_ = nullptr;
}

MemoryRoom::MemoryRoom(TrainingCommons& commons) : commons_(commons), books_(open_books()) {}

MemoryRoom::Books MemoryRoom::open_books() {
  Books books;
  TrainingBase& base = *commons_.base;
  if (!base.ledger) base.ledger = std::make_shared<MemoryLedger>();
  MemoryLedger& ledger = *base.ledger;
  for (const TrainingRemedy& one : kTrainingRemedies) ledger.describe(one.category, one.remedy);
  limited_ = ledger.total() < MemoryLedger::kUnlimited;
  books.turn_extra = ledger.claim("turns", {}, 0, "turns");
  books.base.room = ledger.claim("base", {}, 0, "the base");
  if (!limited_) return books;
  books.base.planner = std::make_unique<ModelMemoryPlanner>(base);
  writing_ = ledger.claim("writing", {}, checkpoint_write_bytes(commons_.base_manifest()) + (std::int64_t{1} << 20), "room to write a model down");
  records_ = ledger.claim("records", {}, most_metadata_bytes(base), "user_metadata and tags of sessions, models and checkpoints, and custom losses");
  results_ = ledger.claim("results", {}, most_result_bytes(base), "results that wait for their clients");
  cutting_ = ledger.claim("base", {}, books.base.planner->cutting(), "room to cut the model for its ranks (--ranks)");
  std::int64_t turn = 0;
  std::vector<ModelSettings> kinds(1);
  kinds[0].rank = 32;
  if (base.opened.runtime->profile.trains_all_weights()) kinds.emplace_back();  // all parameters move
  for (const ModelSettings& kind : kinds) {
    try {
      const ModelMemory& memory = books.base.planner->of(kind);
      turn = std::max({turn, memory.turn.bytes(commons_.options.tokens_a_step), memory.step});
    } catch (const Error& e) {  // a kind that these ranks do not train is refused when it comes
      if (e.code() != ErrorCode::unsupported) throw;
    }
  }
  turn_reserve_ = ledger.claim("turns", {}, std::min(turn, ledger.free() / 3), "a turn of training");
  log_info("memory", {{"megabytes", ledger.total() >> 20}, {"for_models_megabytes", ledger.free() >> 20}, {"turn_megabytes", turn_reserve_.bytes() >> 20}});
  return books;
}

void MemoryRoom::add_source(std::function<bool(const OnExecutor&)> free_one, std::function<std::int64_t(const OnExecutor&)> movable) {
  sources_.push_back({std::move(free_one), std::move(movable)});
}

MemoryRoom::BaseRoom& MemoryRoom::room_of(const OnExecutor& on, const ModelSettings& settings) {
  const TrainingBase& from = commons_.base_of(on, settings);
  Books& books = books_.at(on);
  if (&from == commons_.base.get()) return books.base;
  if (!books.values.planner) {
    books.values.room = commons_.base->ledger->claim("base", {}, 0, "the base of critics");
    books.values.planner = std::make_unique<ModelMemoryPlanner>(from);
  }
  return books.values;
}

void MemoryRoom::hold_base(const OnExecutor& on, const ModelSettings& settings, std::int64_t bytes, const std::string& what) {
  if (!limited_) return;
  BaseRoom& base = room_of(on, settings);
  grow(on, base.room, bytes, what);
  base.weights = bytes;
}

const ModelMemory& MemoryRoom::figures(const OnExecutor& on, const ModelSettings& settings) {
  static const ModelMemory none;
  return limited_ ? room_of(on, settings).planner->of(settings) : none;
}

bool MemoryRoom::free_some(const OnExecutor& on) {
  return std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) { return source.free_one(on); });
}

void MemoryRoom::grow(const OnExecutor& on, MemoryLedger::Claim& claim, std::int64_t bytes, const std::string& what) {
  if (!limited_ || claim.try_resize(bytes)) return;
  MemoryLedger& ledger = *commons_.base->ledger;
  std::int64_t movable = ledger.held("kept forwards") + ledger.held("samplers");
  for (const Source& source : sources_)
    if (source.movable) movable += source.movable(on);
  const std::int64_t more = bytes - claim.bytes();
  while (more <= ledger.free() + movable && free_some(on)) {
    if (claim.try_resize(bytes)) return trim_pooled_memory();
  }
  if (!claim.try_resize(bytes)) ledger.refuse(more, what);
}

MemoryLedger::Claim MemoryRoom::claim(const OnExecutor& on, const char* category, const std::string& owner, std::int64_t bytes, const std::string& what) {
  MemoryLedger::Claim claim = commons_.base->ledger->claim(category, owner, 0, what);
  grow(on, claim, bytes, what);
  return claim;
}

MemoryLedger::Claim MemoryRoom::of_model(const OnExecutor& on, const HostedModel& model, const ModelSettings& settings) {
  return claim(on, "models", model.owner, figures(on, settings).resting, fmt::format("model '{}'", model.id));
}

TurnRoom MemoryRoom::turn(const OnExecutor& on, const HostedModel* model, std::int64_t bytes, const std::string& what) {
  if (!limited_) return {};
  TurnRoom room;
  Books& books = books_.at(on);
  books.busy.push_back(model);
  room.memory_ = this;
  room.model_ = model;
  grow(on, books.turn_extra, std::max<std::int64_t>(0, books.turn_used + bytes - turn_reserve_.bytes()), what);
  books.turn_used += room.bytes_ = bytes;
  return room;
}

TurnRoom MemoryRoom::reading(const OnExecutor& on, const ModelSettings& settings, const std::string& what) {
  const std::int64_t bytes = figures(on, settings).reading;
  TurnRoom room = turn(on, nullptr, bytes, what);
  if (bytes > kIdleBytes) trim_pooled_memory();
  return room;
}

TurnRoom MemoryRoom::piece(const OnExecutor& on, HostedModel& model, const std::vector<TrainSequence>& all, std::size_t begin, std::size_t& end,
                           bool gradient) {
  if (!limited_) return {};
  const ModelSettings settings = model.settings();
  BaseRoom& base = room_of(on, settings);
  const ModelMemory& memory = base.planner->of(settings);
  ModelWork& work = model.work.at(on);
  const bool own_pass = settings.rank == 0 && !settings.base_only;
  for (;;) {
    const TrainSequence *first = all.data() + begin, *last = all.data() + end;
    const std::int64_t rows = memory_rows(first, last);
    const std::int64_t bytes = (gradient ? memory.turn : memory.forward).bytes(rows) +
                               kept_set_bytes(first, last, commons_.base->opened.model->facts().vocabulary) * commons_.base->options.ranks.size();
    const std::size_t half = half_piece(all, begin, end);
    const bool cut = half < end;
    const Books& books = books_.at(on);
    const std::int64_t beyond = books.turn_used + bytes - turn_reserve_.bytes() - books.turn_extra.bytes();
    if (cut && rows > commons_.options.tokens_a_step && beyond > commons_.base->ledger->free()) {  // smaller turns before others make room
      end = half;
      continue;
    }
    try {
      const std::string what = fmt::format("a turn of {} tokens of model '{}'", rows, model.id);
      TurnRoom room = turn(on, &model, bytes, what);
      // What stays of a turn for the next one: of whole models each its own, of adapters the base's.
      std::int64_t& most = own_pass ? work.most_rows : base.rows;
      if (rows > most) {
        grow(on, own_pass ? work.room : base.room, (own_pass ? memory.resting : base.weights) + memory.pass.bytes(rows), what);
        most = rows;
      }
      return room;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::resource_exhausted || !cut) throw;
      end = half;
    }
  }
}

MemoryLedger::Claim MemoryRoom::writing(const ModelSettings& settings, const std::string& what) {
  if (!limited_) return {};
  return run_on(*commons_.base->executor, WorkClass::training,
                [&](const OnExecutor& on) {
                  const std::int64_t bytes = figures(on, settings).reading;
                  MemoryLedger::Claim room = claim(on, "writing", {}, bytes, what);
                  if (bytes > kIdleBytes) trim_pooled_memory();
                  return room;
                })
      .get();
}

SamplerWeights MemoryRoom::sampled(const OnExecutor& on, const std::string& owner, const ModelSettings& settings, const std::string& what,
                                   const std::function<SamplerWeights()>& read) {
  MemoryLedger::Claim room = claim(on, "samplers", owner, figures(on, settings).weights, what);
  const TurnRoom images = reading(on, settings, what);
  return hold(read(), std::move(room));
}

SamplerWeights MemoryRoom::hold(SamplerWeights weights, MemoryLedger::Claim&& room) const {
  if (!limited_) return weights;
  if (weights.adapter) weights.adapter = with_claim(std::move(weights.adapter), std::move(room));
  else weights.weights = with_claim(std::move(weights.weights), std::move(room));
  return weights;
}

bool MemoryRoom::is_busy(const OnExecutor& on, const HostedModel& model) const {
  const std::vector<const HostedModel*>& busy = books_.at(on).busy;
  return std::find(busy.begin(), busy.end(), &model) != busy.end();
}

}  // namespace lockstep
