#include "host/control_records.h"

namespace lockstep {

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
