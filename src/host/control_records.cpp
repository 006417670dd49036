#include "host/control_records.h"

namespace lockstep {

TrainingJson to_json(const Deployment& r) {
  TrainingJson ledger = TrainingJson::array();
  for (const HotLoad& one : r.ledger)
    ledger.push_back({{"identity", one.identity}, {"type", one.type}, {"began", one.began}, {"ended", one.ended}, {"failure", one.failure}});
  return {{"owner", r.owner},
          {"name", r.name},
          {"created", r.created},
          {"base_model", r.base_model},
          {"trainer_job", r.trainer_job},
          {"shape", r.shape},
          {"transition_type", r.transition_type},
          {"description", r.description},
          {"min_replicas", r.min_replicas},
          {"max_replicas", r.max_replicas},
          {"identity", r.identity},
          {"checkpoint", r.checkpoint},
          {"failed", r.failed},
          {"failure", r.failure},
          {"guesses", r.guesses},
          {"ledger", ledger}};
}
void from_json(const TrainingJson& j, Deployment& r) {
  r = {j.at("owner"),           j.at("name"),        j.at("created"),         j.at("base_model"),   j.at("trainer_job"), j.at("shape"),
       j.at("transition_type"), j.at("description"), j.at("min_replicas"),    j.at("max_replicas"), j.at("identity"),    j.at("checkpoint"),
       j.at("failed"),          j.at("failure"),     j.value("guesses", true)};
  for (const TrainingJson& one : j.value("ledger", TrainingJson::array()))
    r.ledger.push_back({one.at("identity"), one.at("type"), one.at("began"), one.at("ended"), one.at("failure")});
}

TrainingJson to_json(const TrainerJob& r) {
  return {{"owner", r.owner},
          {"name", r.name},
          {"created", r.created},
          {"updated", r.updated},
          {"state", r.state},
          {"base_model", r.base_model},
          {"display_name", r.display_name},
          {"shape", r.shape},
          {"rank", r.rank},
          {"max_context", r.max_context},
          {"forward_only", r.forward_only}};
}
void from_json(const TrainingJson& j, TrainerJob& r) {
  r = {j.at("owner"),        j.at("name"),  j.at("created"), j.at("updated"),     j.at("state"),       j.at("base_model"),
       j.at("display_name"), j.at("shape"), j.at("rank"),    j.at("max_context"), j.at("forward_only")};
}

TrainingJson to_json(const PromotedModel& r) {
  return {{"owner", r.owner},
          {"name", r.name},
          {"created", r.created},
          {"base_model", r.base_model},
          {"checkpoint", r.checkpoint},
          {"folder", r.folder},
          {"settings", to_json(r.settings)},
          {"profile", r.profile},
          {"bytes", r.bytes}};
}
void from_json(const TrainingJson& j, PromotedModel& r) {
  r = {j.at("owner"),
       j.at("name"),
       j.at("created"),
       j.at("base_model"),
       j.at("checkpoint"),
       j.at("folder"),
       model_settings_of(j.at("settings")),
       j.value("profile", ""),
       j.value("bytes", std::int64_t{0})};
}

}  // namespace lockstep
