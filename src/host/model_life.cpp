#include "host/model_life.h"

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/server_paths.h"
#include "host/model_state.h"
#include "host/promoted_models.h"

namespace lockstep {
namespace {
constexpr std::size_t kLongestReason = 512;  // of what is kept of a model that could not be made
}

std::string ModelLife::id_of(const CreateModel& wanted) {
  const bool run = wanted.session.starts_with("ts-") && !wanted.settings.base_only;
  return fmt::format("{}:train:{}", run ? "run-" + sha256_hex(fmt::format("{}:{}", wanted.session, wanted.number)).substr(0, 32) : wanted.session,
                     wanted.number);
}

std::string ModelLife::create(const std::string& owner, const CreateModel& wanted, const Encode<ModelRecord>& encode) {
  to_.sessions.find(owner, wanted.session);
  const Intake::Entry entry = commons_.intake.enter();  // until it is in its lane: who stops waits for what is there
  entry.check();
  const std::string id = id_of(wanted);
  const auto numbered = commons_.numbers.find_or(owner, "create " + wanted.session, wanted.number, [&] {
    to_.sessions.check_takes_work(wanted.session);
    return commons_.futures.create(owner, id);
  });
  const std::string& request = numbered.first;
  if (!numbered.second) return request;
  ModelRecord record;
  record.id = id;
  record.session = wanted.session;
  record.owner = owner;
  record.number = wanted.number;
  record.settings = wanted.settings;
  record.created = record.used = unix_now();
  const auto model = std::make_shared<HostedModel>(record);
  try {
    to_.models.check_room(owner);
    const auto room = commons_.metadata.hold(owner, model->metadata_bytes);
    const auto state = model->state.lock();  // whoever finds it waits until its creation is in its lane, before all else
    to_.models.add(model);
    const auto work = [this, model, request, wanted, encode](const OnExecutor& on) {
      if (to_.resting.gives_way(on, *model)) return true;
      try {
        make(on, *model, wanted);
        commons_.futures.resolve(request, encode(model->record()));
      } catch (const std::exception& e) {
        to_.resting.let_go(on, *model);
        const std::string why = fmt::format("model '{}' could not be made: {}", model->id, without_server_paths(e.what()).substr(0, kLongestReason));
        {
          const auto its = model->state.lock();
          its->unmade = its->lost = why;
          to_.models.remove_unmade(*model, why);
        }
        commons_.futures.fail(request, e);
        to_.lanes.forget_waiting(on, *model, why);  // what came with it, and would wait for numbers that never come
      }
      return false;
    };
    commons_.queue->submit(id, owner, work, "create");
  } catch (const Error& e) {
    commons_.futures.fail(request, e);
  }
  return request;
}

void ModelLife::make(const OnExecutor& on, HostedModel& model, const CreateModel& wanted) {
  ModelSettings settings = wanted.settings;
  std::optional<CheckpointRecord> from;
  if (!wanted.from.empty()) {
    from = to_.checkpoints.find(model.owner, wanted.from);
    const std::string base_model = settings.base_model.empty() ? from->settings.base_model : settings.base_model;
    commons_.check_kind(*from, base_model);
    const ClientJson metadata = settings.user_metadata;
    const std::string optimizer = wanted.with_optimizer ? from->settings.optimizer : settings.optimizer;
    settings = from->settings;
    settings.optimizer = optimizer;
    settings.base_model = base_model;
    settings.user_metadata = metadata;
  }
  const std::optional<PromotedModel> promoted = to_.promoted.find(model.owner, settings.base_model);
  if (promoted && (promoted->adapter() || settings.rank > 0 || settings.base_only))
    fail(ErrorCode::unsupported,
         "base_model '{}' is a promoted model; allowed are whole weights, all of them trained (rank 0); load_adapter takes a promoted adapter",
         settings.base_model);
  if (!promoted) commons_.check_base(settings.base_model);
  if (settings.base_only) commons_.refuse_critic(settings.base_model, "whose head is zeros until it is trained; allowed is base_only false");
  optimizer_family(settings);
  to_.resting.make_place(on, model);
  if (settings.rank > 0 && !settings.seed) settings.seed = random_seed();
  MemoryLedger::Claim room = to_.memory.of_model(on, model, settings);
  const TurnRoom reading = from || promoted ? to_.memory.reading(on, settings, fmt::format("reading the weights of model '{}'", model.id)) : TurnRoom();
  to_.resting.settle(on, model, to_.resting.make(on, model.owner, settings), std::move(room));
  TrainedModel& trained = *model.work.at(on).trained;
  if (from) {
    if (wanted.with_optimizer && !from->optimizer) fail(ErrorCode::invalid_argument, "the checkpoint {} has no optimizer state", from->path());
    restore_model(on, trained, to_.files.read(on, *from, trained.manifest()), commons_.runtime().profile, wanted.with_optimizer);
  }
  if (promoted && !from) {
    check_profile_of(commons_, *promoted);
    TrainingCheckpoint begin{.masters = load_model_folder(promoted_folder(commons_, *promoted)).masters, .profile_digest = commons_.runtime().profile.digest()};
    begin.first_moments.resize(begin.masters.size());
    begin.second_moments.resize(begin.masters.size());
    restore_model(on, trained, std::move(begin), commons_.runtime().profile, false);
  }
  std::string digest;
  if (from) digest = from->profile;
  else if (promoted) digest = promoted->profile;
  ModelRecord record;
  {
    const auto state = model.state.lock();
    state->record.settings = settings;
    state->record.steps = trained.steps();
    state->record.changed = from.has_value() || promoted.has_value();
    state->record.declares = says_declared(digest, commons_.runtime().profile);
    record = state->record;
  }
  to_.models.store(record);
}

std::string ModelLife::unload(const std::string& owner, const std::string& id, const Encode<ModelRecord>& encode) {
  const std::shared_ptr<HostedModel> model = to_.models.at(owner, id);
  const Intake::Entry entry = commons_.intake.enter();
  entry.check();
  const std::string request = commons_.futures.create(owner, id);
  commons_.queue->submit(id, owner, [this, model, request, encode](const OnExecutor& on) {
    to_.resting.let_go(on, *model);
    to_.gradients.forget(on, *model);
    to_.samplers.drop_inflight(on, model->id);
    const std::string why = fmt::format("model '{}' was unloaded", model->id);
    ModelRecord record;
    {
      const auto state = model->state.lock();
      state->lost = why;
      record = state->record;
    }
    to_.models.remove(*model);
    to_.lanes.forget_waiting(on, *model, why);
    commons_.futures.forget(record.id);
    commons_.futures.resolve(request, encode(record));
    return false;
  });
  return request;
}

void ModelLife::drop_of_session(const std::string& owner, const std::string& session) {
  for (const std::shared_ptr<HostedModel>& model : to_.models.of_session(session))
    if (model->owner == owner) drop(owner, model->id);
}

void ModelLife::drop(const std::string& owner, const std::string& id) {
  try {
    unload(owner, id, [](const ModelRecord&) { return Outcome{"application/json", "{}", {}, {}}; });
  } catch (const Error& e) {
    if (e.code() != ErrorCode::not_found) throw;  // its client was faster
  }
}

}  // namespace lockstep
