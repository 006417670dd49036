// Room for what a training service holds: claimed on the base's ledger before it is taken, by the planner's figures. Where there is none,
// what can come again makes room: kept forwards, then weights that are sampled, then models at rest; all of these are on disk, or
// made again. Gradients that no step has taken, and what runs, stay. Executor.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "host/training_service.h"
#include "tensor/memory_pool.h"

namespace lockstep {

namespace {
constexpr std::int64_t kMostResultBytes = std::int64_t{256} << 20;
constexpr std::int64_t kIdleBytes = std::int64_t{64} << 20;  // a host's images that are larger take the place of what lies idle in pools

struct TrainingRemedy {
  const char *category, *remedy;
};
constexpr TrainingRemedy kTrainingRemedies[] = {
    {"models", "unload some, or step those with gradients so that they can rest on disk"},
    {"gradients", "step their models, or unload them"},
    {"kept forwards", "they go by themselves (--reuse-megabytes)"},
    {"samplers", "those that no request uses go by themselves (--sampler-megabytes)"},
};
}  // namespace

std::int64_t TrainingService::most_result_bytes(const TrainingBase& base) {
  return base.ledger ? std::min(kMostResultBytes, base.ledger->total() / 16) : kMostResultBytes;
}

TrainingService::TurnRoom& TrainingService::TurnRoom::operator=(TurnRoom&& other) noexcept {
  if (this == &other) return *this;
  leave();
  service_ = std::exchange(other.service_, nullptr);
  model_ = other.model_;
  bytes_ = other.bytes_;
  return *this;
}

void TrainingService::TurnRoom::leave() noexcept {
  if (!service_) return;
  service_->turn_used_ -= bytes_;
  service_->turn_extra_.try_resize(std::max<std::int64_t>(0, service_->turn_used_ - service_->turn_reserve_.bytes()));  // it shrinks
  const auto busy = std::find(service_->busy_.begin(), service_->busy_.end(), model_);
  service_->busy_.erase(busy);
  service_ = nullptr;
}

// What is there from the beginning to the end: room to write any model down, to take one turn, and for results that wait for their clients.
void TrainingService::claim_fixed_room() {
  if (!base_->ledger) base_->ledger = std::make_shared<MemoryLedger>();
  MemoryLedger& ledger = *base_->ledger;
  for (const TrainingRemedy& one : kTrainingRemedies) ledger.describe(one.category, one.remedy);
  limited_ = ledger.total() < MemoryLedger::kUnlimited;
  turn_extra_ = ledger.claim("turns", {}, 0, "turns");
  base_room_ = ledger.claim("base", {}, 0, "the base");
  if (!limited_) return;
  const Manifest& manifest = base_->opened.loaded.model->manifest();
  planner_ = std::make_unique<ModelMemoryPlanner>(*base_);
  writing_ = ledger.claim("writing", {}, checkpoint_write_bytes(manifest) + (std::int64_t{1} << 20), "room to write a model down");
  metadata_room_ = std::min(kMostMetadata, ledger.total() / 64);
  records_ = ledger.claim("records", {}, metadata_room_, "user_metadata and tags of sessions, models and checkpoints");
  results_ = ledger.claim("results", {}, most_result_bytes(*base_), "results that wait for their clients");
  std::int64_t turn = 0;
  std::vector<ModelSettings> kinds(1);
  kinds[0].rank = 32;
  if (base_->opened.runtime->profile.weight_bits == 0) kinds.emplace_back();  // all parameters move
  for (const ModelSettings& kind : kinds) {
    const ModelMemory& memory = planner_->of(kind);
    turn = std::max({turn, memory.turn.bytes(options_.tokens_a_step), memory.step});
  }
  turn_reserve_ = ledger.claim("turns", {}, std::min(turn, ledger.free() / 3), "a turn of training");
  models_bytes_ = ledger.free();
  log_info("memory", {{"megabytes", ledger.total() >> 20}, {"for_models_megabytes", models_bytes_ >> 20}, {"turn_megabytes", turn_reserve_.bytes() >> 20}});
}

const ModelMemory& TrainingService::memory_of(const ModelSettings& settings) {
  static const ModelMemory none;
  return limited_ ? planner_->of(settings) : none;
}

// One thing that can come again goes. False: there is none.
bool TrainingService::free_some() {
  if (base_->kept->drop_oldest() || cache_.drop_oldest()) return true;
  if (const std::int64_t bytes = sampler_bytes_held(); bytes > 0) {
    spill_samplers(bytes - 1);
    if (sampler_bytes_held() < bytes) return true;
  }
  return rest_one_model();
}

void TrainingService::grow(MemoryLedger::Claim& claim, std::int64_t bytes, const std::string& what) {
  if (!limited_ || claim.try_resize(bytes)) return;
  MemoryLedger& ledger = *base_->ledger;
  std::int64_t movable = ledger.held("kept forwards") + ledger.held("samplers");
  for (const std::shared_ptr<Model>& model : idle_models()) movable += model->room.bytes();
  const std::int64_t more = bytes - claim.bytes();
  while (more <= ledger.free() + movable && free_some()) {
    if (claim.try_resize(bytes)) return trim_pooled_memory();
  }
  if (!claim.try_resize(bytes)) ledger.refuse(more, what);
}

MemoryLedger::Claim TrainingService::room_for(const char* category, const std::string& owner, std::int64_t bytes, const std::string& what) {
  MemoryLedger::Claim claim = base_->ledger->claim(category, owner, 0, what);
  grow(claim, bytes, what);
  return claim;
}

TrainingService::TurnRoom TrainingService::turn_room(const Model* model, std::int64_t bytes, const std::string& what) {
  if (!limited_) return {};
  TurnRoom room;
  busy_.push_back(model);
  room.service_ = this;
  room.model_ = model;
  grow(turn_extra_, std::max<std::int64_t>(0, turn_used_ + bytes - turn_reserve_.bytes()), what);
  turn_used_ += room.bytes_ = bytes;
  return room;
}

TrainingService::TurnRoom TrainingService::reading_room(const ModelSettings& settings, const std::string& what) {
  const std::int64_t bytes = memory_of(settings).reading;
  TurnRoom room = turn_room(nullptr, bytes, what);
  if (bytes > kIdleBytes) trim_pooled_memory();
  return room;
}

MemoryLedger::Claim TrainingService::model_room(const Model& model, const ModelSettings& settings) {
  return room_for("models", model.record.owner, memory_of(settings).resting, fmt::format("model '{}'", model.record.id));
}

TrainingService::TurnRoom TrainingService::admit_piece(Model& model, const std::vector<TrainSequence>& all, std::size_t begin, std::size_t& end, bool gradient) {
  if (!limited_) return {};
  const ModelSettings& settings = model.record.settings;
  const ModelMemory& memory = memory_of(settings);
  const bool own_pass = settings.rank == 0 && !settings.base_only;
  for (;;) {
    const std::int64_t rows = memory_rows(all.data() + begin, all.data() + end), bytes = (gradient ? memory.turn : memory.forward).bytes(rows);
    const bool cut = end - begin > 1;
    const std::int64_t beyond = turn_used_ + bytes - turn_reserve_.bytes() - turn_extra_.bytes();
    if (cut && rows > options_.tokens_a_step && beyond > base_->ledger->free()) {  // smaller turns before others make room
      end = begin + (end - begin) / 2;
      continue;
    }
    try {
      const std::string what = fmt::format("a turn of {} tokens of model '{}'", rows, model.record.id);
      TurnRoom room = turn_room(&model, bytes, what);
      // What stays of a turn for the next one: of whole models each its own, of adapters the base's.
      std::int64_t& most = own_pass ? model.most_rows : base_rows_;
      if (rows > most) {
        grow(own_pass ? model.room : base_room_, (own_pass ? memory.resting : 0) + memory.pass.bytes(rows), what);
        most = rows;
      }
      return room;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::resource_exhausted || !cut) throw;
      end = begin + (end - begin) / 2;
    }
  }
}

void TrainingService::admit_gradient(Model& model, std::size_t piece, std::size_t sequences) {
  if (!limited_) return;
  const ModelMemory& memory = memory_of(model.record.settings);
  const std::int64_t bytes = model.trained->accumulates(piece, sequences) ? memory.accumulators : memory.alone;
  if (bytes <= model.gradient_room.bytes()) return;
  std::int64_t held = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, other] : models_)
      if (other.get() != &model && other->record.owner == model.record.owner && other->gradient_room.bytes() > 0) held += other->room.bytes() + other->gradient_room.bytes();
  }
  const std::int64_t share = models_bytes_ / 100 * options_.key_share;
  if (held > 0 && held + model.room.bytes() + bytes > share)
    fail(ErrorCode::resource_exhausted,
         "this API key's models with gradients that no optim_step has taken hold {} of memory, allowed are {} of the {} for models (--key-share); step or unload some",
         megabytes_text(held), megabytes_text(share), megabytes_text(models_bytes_));
  if (model.gradient_room.bytes() == 0) model.gradient_room = base_->ledger->claim("gradients", model.record.owner, 0, "gradients");
  grow(model.gradient_room, bytes, fmt::format("the gradient of model '{}'", model.record.id));
}

SamplerWeights TrainingService::sampled_weights(const std::string& owner, const ModelSettings& settings, const std::string& what, const std::function<SamplerWeights()>& read) {
  MemoryLedger::Claim room = room_for("samplers", owner, memory_of(settings).weights, what);
  const TurnRoom reading = reading_room(settings, what);
  return hold_room(read(), std::move(room));
}

SamplerWeights TrainingService::hold_room(SamplerWeights weights, MemoryLedger::Claim&& room) {
  if (!limited_) return weights;
  if (weights.adapter) weights.adapter = with_claim(std::move(weights.adapter), std::move(room));
  else weights.weights = with_claim(std::move(weights.weights), std::move(room));
  return weights;
}

MemoryLedger::Claim TrainingService::writing_room(const ModelSettings& settings, const std::string& what) {
  if (!limited_) return {};
  return base_->executor->run(WorkPriority::training, [&] {
    const std::int64_t bytes = memory_of(settings).reading;
    MemoryLedger::Claim room = room_for("writing", {}, bytes, what);
    if (bytes > kIdleBytes) trim_pooled_memory();
    return room;
  }).get();
}

std::vector<std::shared_ptr<TrainingService::Model>> TrainingService::idle_models() {
  std::vector<std::shared_ptr<Model>> idle;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, model] : models_)
    if (model->trained && !model->record.open_gradients && model->early.empty() && std::find(busy_.begin(), busy_.end(), model.get()) == busy_.end()) idle.push_back(model);
  std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a->record.used < b->record.used; });
  return idle;
}

// The one that was not used for the longest time goes to disk; where it cannot be written, the next.
bool TrainingService::rest_one_model() {
  for (const std::shared_ptr<Model>& model : idle_models()) {
    try {
      rest(*model);
      return true;
    } catch (const std::exception& e) {
      log_warning("a model could not be put to rest on disk", {{"model", model->record.id}, {"reason", e.what()}});
    }
  }
  return false;
}

void TrainingService::rest(Model& model) {
  write_living(model);
  let_go(model);
}

void TrainingService::let_go(Model& model) {
  {
    const std::lock_guard lock(mutex_);
    model.trained.reset();
  }
  model.room.release();
  model.gradient_room.release();
  model.most_rows = 0;
}

}  // namespace lockstep
