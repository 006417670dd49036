#include "host/custom_losses.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/log.h"
#include "host/sessions.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostLossBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostLossesOfSession = 256;

std::shared_ptr<const CustomLoss> loss_of_document(const TrainingJson& document) {
  static const TrainingJson none;
  const auto part = [&](const char* name) -> const TrainingJson& {
    const auto found = document.find(name);
    return found == document.end() ? none : *found;
  };
  return std::make_shared<const CustomLoss>(document.value("name", "loss"), part("inputs"), part("graph"));
}

// What the ids of a session's losses begin with: in the order of ids they stand together.
std::string ids_of_losses(const std::string& session) { return session + ":loss:"; }
}  // namespace

CustomLosses::CustomLosses(TrainingCommons& commons, Sessions& sessions) : commons_(commons), sessions_(sessions) {
  std::map<std::string, OwnedLoss> losses;
  commons_.store->each("custom_loss", [&](const std::string& id, const std::string& text) {
    try {
      const TrainingJson document = read_own_json(text);
      losses[id] = {document.at("owner").get<std::string>(), document.at("session").get<std::string>(), loss_of_document(document)};
    } catch (const std::exception& e) {
      log_warning("a custom loss of the state cannot be read any more", {{"loss", id}, {"reason", e.what()}});
    }
  });
  const auto held = losses_.lock();
  *held = std::move(losses);
}

std::string CustomLosses::create(const std::string& owner, const std::string& session, std::int64_t number, TrainingJson document,
                                 const Encode<std::string>& encode) {
  sessions_.find(owner, session);
  const std::string id = ids_of_losses(session) + std::to_string(number);
  const Intake::Entry entry = commons_.intake.enter();
  entry.check();
  const auto numbered = commons_.numbers.find_or(owner, "loss " + session, number, [&] {
    sessions_.check_takes_work(session);
    const auto losses = losses_.lock();
    std::int64_t own = 0;
    for (auto one = losses->lower_bound(ids_of_losses(session)); one != losses->end() && one->second.session == session; ++one) ++own;
    if (own >= kMostLossesOfSession) fail(ErrorCode::resource_exhausted, "the session has {} custom losses, allowed are {}", own, kMostLossesOfSession);
    return commons_.futures.create(owner, id);
  });
  const std::string& request = numbered.first;
  if (!numbered.second) return request;
  try {
    if (!run_here()) fail(ErrorCode::unsupported, "custom losses run in the client here; the server was started with --custom-loss client");
    TrainingJson record{{"owner", owner}, {"session", session}};
    for (const char* field : {"name", "inputs", "graph"})
      if (const auto found = document.find(field); found != document.end()) record[field] = std::move(*found);
    const std::string text = record.dump(-1, ' ', false, TrainingJson::error_handler_t::replace);
    if (text.size() > kMostLossBytes) fail(ErrorCode::invalid_argument, "the loss has {} bytes, allowed are {}", text.size(), kMostLossBytes);
    std::shared_ptr<const CustomLoss> loss = loss_of_document(record);
    const auto room = commons_.metadata.hold(owner, loss->bytes());
    commons_.store->put("custom_loss", id, text);
    {
      const auto losses = losses_.lock();
      (*losses)[id] = {owner, session, std::move(loss)};
    }
    commons_.futures.resolve(request, encode(id));
  } catch (const std::exception& e) {
    commons_.futures.fail(request, e);
  }
  return request;
}

std::shared_ptr<const CustomLoss> CustomLosses::find(const std::string& owner, const std::string& session, const LossRequest& wanted) const {
  const auto named = wanted.config.find("loss_id");
  const auto* id = named == wanted.config.end() ? nullptr : std::get_if<std::string>(&named->second);
  if (!id || wanted.config.size() != 1)
    fail(ErrorCode::invalid_argument, "loss_fn_config of the loss custom has {} entries beside share_prompts, allowed is a text loss_id alone",
         wanted.config.size());
  const auto losses = losses_.lock();
  const auto found = losses->find(*id);
  if (found == losses->end() || found->second.owner != owner || found->second.session != session)
    fail(ErrorCode::not_found, "loss_fn_config.loss_id is '{}', allowed are losses that create_custom_loss made in the model's session", id->substr(0, 128));
  return found->second.loss;
}

void CustomLosses::remove_of(const std::string& session) {
  std::vector<std::string> ids;
  {
    const auto losses = losses_.lock();
    for (auto one = losses->lower_bound(ids_of_losses(session)); one != losses->end() && one->second.session == session; ++one) ids.push_back(one->first);
  }
  for (const std::string& id : ids) {  // its session is gone: nobody makes it anew
    commons_.store->remove("custom_loss", id);
    const auto losses = losses_.lock();
    losses->erase(id);
  }
}

void CustomLosses::each_bytes(const MetadataRoom::Count& count) const {
  const auto losses = losses_.lock();
  for (const auto& [id, one] : *losses) count(one.owner, one.loss->bytes());
}

}  // namespace lockstep
