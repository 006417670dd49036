// Routes of the `tinker` package about the account behind a key. This server has keys and checkpoints, but no accounts, prices or audit logs: what
// it does not have is refused in one sentence.
#include "api/errors.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {
namespace {

// The package repeats every status of 500 and above for minutes, so what its clients ask is refused as unsupported, with 400; its
// command line asks once.
[[noreturn]] void refuse_account(int status, const char* why) { throw RequestError(ErrorCode::unsupported, {}, why, status, "unsupported"); }

// Checkpoints of the key, by the project of their session.
void checkpoint_storage(const TrainingCall& call) {
  const std::optional<std::string> wanted = call.request.query_value("project_id");
  std::map<std::string, std::string> project_of;
  for (const SessionRecord& s : call.service.sessions().all(call.owner)) project_of[s.id] = s.project;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> kept;  // project -> checkpoints, bytes
  for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner)) {
    auto& [count, bytes] = kept[project_of[r.session]];
    ++count;
    bytes += r.bytes;
  }
  TrainingJson rows = TrainingJson::array();
  for (const auto& [project, sums] : kept) {
    if (wanted && *wanted != project) continue;
    TrainingJson row{{"checkpoint_count", sums.first}, {"size_bytes", sums.second}, {"size_gigabytes", static_cast<double>(sums.second) / 1e9}};
    if (!project.empty()) row["project_id"] = project;
    rows.push_back(std::move(row));
  }
  call.answer({{"data", rows}});
}
}  // namespace

void add_account_routes(TrainingRoutes& routes) {
  for (const char* method : {"GET", "DELETE"})
    routes.add(method, "auth/apikey/me", [](const TrainingCall&) {
      refuse_account(501,
                     "this server has no accounts: keys are the lines of its --api-key-file, and nothing is known of them but their names; use the key itself "
                     "(TINKER_API_KEY), which needs no login");
    });
  routes.add_with_query("GET", "audit", known_query({"event_type", "day"}), [](const TrainingCall&) {
    refuse_account(400, "this server keeps no audit log; `lockstep serve --access-log` writes a line a request, with the name of its key");
  });
  routes.add_with_query("GET", "billing/usage/events", known_query({"starting_on", "ending_before"}), [](const TrainingCall&) {
    refuse_account(400, "this server bills nothing and keeps no usage by the hour; GET /metrics counts tokens and operations since its start");
  });
  routes.add_with_query("GET", "billing/usage/checkpoints/current", known_query({"project_id"}), checkpoint_storage);
}

}  // namespace lockstep
