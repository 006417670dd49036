// Weights for other programs: saved as PEFT's or Hugging Face's folders, fetched file by file over plain HTTP; and copies of checkpoints.
#include <algorithm>
#include <deque>
#include <mutex>

#include "api/errors.h"
#include "api/tinker/tinker_routes.h"
#include "base/entropy.h"
#include "base/hash.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {
constexpr double kUrlSeconds = 3600;
constexpr std::size_t kMostGrants = 10'000, kMostGrantsOfKey = 1000;

// Secret words in paths, with which the files of a folder may be fetched for a while: the client's downloader sends no key. The number of words
// is limited for each owner, whose oldest is dropped for a new one, and for all, where the owner with most loses one.
class FileGrants {
 public:
  std::string grant(const std::string& owner, std::filesystem::path folder, double now) {
    const std::string word = hex64(random_bits()) + hex64(random_bits()) + hex64(random_bits());
    const std::lock_guard lock(mutex_);
    for (auto own = by_owner_.begin(); own != by_owner_.end();) {
      while (!own->second.empty() && grants_[own->second.front()].until < now) drop_oldest(own->second);
      own = own->second.empty() ? by_owner_.erase(own) : std::next(own);
    }
    std::deque<std::string>& words = by_owner_[owner];
    if (words.size() >= kMostGrantsOfKey) drop_oldest(words);
    if (grants_.size() >= kMostGrants)
      drop_oldest(std::max_element(by_owner_.begin(), by_owner_.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); })->second);
    grants_[word] = {std::move(folder), now + kUrlSeconds};
    words.push_back(word);
    return word;
  }
  std::optional<std::filesystem::path> folder(const std::string& word, double now) {
    const std::lock_guard lock(mutex_);
    const auto found = grants_.find(word);
    if (found == grants_.end() || found->second.until < now) return std::nullopt;
    return found->second.folder;
  }

 private:
  struct Grant {
    std::filesystem::path folder;
    double until = 0;
  };
  void drop_oldest(std::deque<std::string>& words) {
    grants_.erase(words.front());
    words.pop_front();
  }
  std::mutex mutex_;
  std::map<std::string, Grant> grants_;
  std::map<std::string, std::deque<std::string>> by_owner_;  // words, oldest first
};

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void save_external(const TrainingCall& call) {
  const TrainingJson json = call.json();
  call.numbered(json, [&](const std::string& model, std::int64_t sequence) {
    if (json.contains("age_encryption_recipients") && !json["age_encryption_recipients"].is_null())
      return call.service.lanes().refuse(
          call.owner, model, sequence,
          Error(ErrorCode::unsupported, "age_encryption_recipients is given, and exports are not encrypted here; allowed is none"));
    SaveRequest save;
    save.kind = "external_weights";
    save.name = text_field(json, "path");
    save.ttl_seconds = optional_number(json, "ttl_seconds");
    return call.service.operations().save(call.owner, model, sequence, save, [](const CheckpointRecord& r) {
      return json_outcome({{"path", r.path()}, {"size_bytes", r.bytes}, {"type", "save_weights_external"}});
    });
  });
}

void tell_urls(const TrainingCall& call, FileGrants& grants, bool tls) {
  const std::string path = fmt::format("tinker://{}/external_weights/{}", call.request.parameter("run"), call.request.parameter("name"));
  const std::filesystem::path folder = call.service.checkpoints().external_folder(call.owner, path);
  const double now = unix_now();
  const std::string word = grants.grant(call.owner, folder, now);
  TrainingJson urls = TrainingJson::object();
  for (const std::string& name : files_in(folder))
    urls[name] = fmt::format("{}://{}/api/v1/external_files/{}/{}", tls ? "https" : "http", call.request.header("host"), word, name);
  call.answer({{"urls", urls}, {"expires", iso_time(now + kUrlSeconds)}});
}

void send_file(const TrainingCall& call, FileGrants& grants) {
  const std::string name(call.request.parameter("file"));
  const std::optional<std::filesystem::path> folder = grants.folder(std::string(call.request.parameter("word")), unix_now());
  const std::vector<std::string> names = folder ? files_in(*folder) : std::vector<std::string>();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw RequestError(ErrorCode::not_found, {}, "there is no such file, or its URL has expired", 404);
  const std::shared_ptr<const MappedFile> file = MappedFile::open(*folder / name);
  ApiResponse response{200, name.ends_with(".json") ? "application/json" : "application/octet-stream", {}, {}};
  response.static_body = file->bytes();
  response.owner = file;
  call.out->send(std::move(response));
}

void copy_weights(const TrainingCall& call) {
  const TrainingJson json = call.json();
  CopyRequest wanted;
  wanted.source = required_text(json, "source_path");
  wanted.session = text_field(json, "session_id");
  wanted.project = text_field(json, "destination_project_id");
  if (!wanted.project.empty() && !wanted.session.empty())
    fail_value("destination_project_id", "is given beside session_id, allowed is one of the two: a session has its own project");
  if (wanted.session.empty() && is_given(json, "model_seq_id")) fail_value("model_seq_id", "is given without session_id, allowed are both or none");
  wanted.number = wanted.session.empty() ? 0 : model_number(json);
  wanted.ttl_seconds = optional_number(json, "ttl_seconds");
  wanted.idempotency_key = call.text_header("x-idempotency-key");
  call.answer({{"tinker_path", call.service.checkpoints().copy(call.owner, wanted)}});
}

}  // namespace

void add_external_routes(TrainingRoutes& routes, const TrainingRouteOptions& options) {
  const auto grants = std::make_shared<FileGrants>();
  routes.post("save_weights_external", known_fields({"model_id", "seq_id", "path", "ttl_seconds", "age_encryption_recipients"}, {"type"}), save_external);
  routes.add("GET", "training_runs/{run}/checkpoints/external_weights/{name}/external_weights_urls",
             [grants, tls = options.tls](const TrainingCall& call) { tell_urls(call, *grants, tls); });
  routes.add_open("GET", "/api/v1/external_files/{word}/{file}", [grants](const TrainingCall& call) { send_file(call, *grants); });
  JsonFields copy = known_fields({"source_path", "destination_project_id", "session_id", "model_seq_id", "ttl_seconds"}, {"type"});
  copy.only("weights_access_token", {});
  routes.post("copy_weights", std::move(copy), copy_weights);
}

}  // namespace lockstep
