#include "store/training_store.h"

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::int64_t kVersion = 1;

std::filesystem::path made(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  return folder;
}
}  // namespace

TrainingStore::TrainingStore(const std::filesystem::path& folder) : folder_(made(folder)), database_(folder_ / "lockstep.db") {
  std::int64_t version = 0;
  database_.rows("PRAGMA user_version", {}, [&](const Row& row) { version = row.integer(0); });
  if (version > kVersion)
    fail(ErrorCode::unsupported, "{} was written by a newer version (schema {}, known is {})", (folder_ / "lockstep.db").string(), version, kVersion);
  database_.execute(
      "CREATE TABLE IF NOT EXISTS documents(kind TEXT NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL, number INTEGER PRIMARY KEY AUTOINCREMENT, "
      "UNIQUE(kind, id));"
      "CREATE TABLE IF NOT EXISTS results(id TEXT PRIMARY KEY, number INTEGER NOT NULL, owner TEXT NOT NULL, scope TEXT NOT NULL, content_type TEXT NOT NULL, "
      "bytes BLOB NOT NULL,"
      " category TEXT NOT NULL, message TEXT NOT NULL);"
      "CREATE INDEX IF NOT EXISTS results_by_number ON results(number);"
      "CREATE INDEX IF NOT EXISTS results_by_scope ON results(scope);"
      "PRAGMA user_version=1;");
}

void TrainingStore::put(std::string_view kind, std::string_view id, std::string_view document) {
  const std::lock_guard lock(mutex_);
  database_.run("INSERT INTO documents(kind, id, document) VALUES (?, ?, ?) ON CONFLICT(kind, id) DO UPDATE SET document = excluded.document",
                {kind, id, document});
}

void TrainingStore::remove(std::string_view kind, std::string_view id) {
  const std::lock_guard lock(mutex_);
  database_.run("DELETE FROM documents WHERE kind = ? AND id = ?", {kind, id});
}

void TrainingStore::each(std::string_view kind, const std::function<void(const std::string&, const std::string&)>& visit) {
  std::vector<std::pair<std::string, std::string>> found;
  {
    const std::lock_guard lock(mutex_);
    database_.rows("SELECT id, document FROM documents WHERE kind = ? ORDER BY number", {kind},
                   [&](const Row& row) { found.emplace_back(row.text(0), row.text(1)); });
  }
  for (const auto& [id, document] : found) visit(id, document);
}

void TrainingStore::put_result(const StoredResult& r) {
  const std::lock_guard lock(mutex_);
  // Results are fetched again at most; the write-ahead log is enough for a kill, and a lost one after a power failure is asked for anew.
  database_.execute("PRAGMA synchronous=NORMAL;");
  database_.run(
      "INSERT OR REPLACE INTO results(id, number, owner, scope, content_type, bytes, category, message) VALUES (?, (SELECT COALESCE(MAX(number), 0) + 1 FROM "
      "results), ?, ?, ?, ?, ?, ?)",
      {std::string_view(r.id), std::string_view(r.owner), std::string_view(r.scope), std::string_view(r.content_type), Blob{r.bytes},
       std::string_view(r.category), std::string_view(r.message)});
  database_.execute("PRAGMA synchronous=FULL;");
}

std::optional<StoredResult> TrainingStore::result(std::string_view id) {
  const std::lock_guard lock(mutex_);
  std::optional<StoredResult> found;
  database_.rows("SELECT id, owner, scope, content_type, bytes, category, message FROM results WHERE id = ?", {id},
                 [&](const Row& row) { found = StoredResult{row.text(0), row.text(1), row.text(2), row.text(3), row.text(4), row.text(5), row.text(6)}; });
  return found;
}

void TrainingStore::remove_results(std::string_view scope) {
  const std::lock_guard lock(mutex_);
  database_.run("DELETE FROM results WHERE scope = ?", {scope});
}

std::int64_t TrainingStore::trim_results(std::int64_t most_bytes) {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0, last_kept = -1, removed = 0;
  database_.rows("SELECT number, LENGTH(bytes) FROM results ORDER BY number DESC", {}, [&](const Row& row) {
    bytes += row.integer(1) + 256;
    if (bytes <= most_bytes) last_kept = row.integer(0);
    else ++removed;
  });
  if (removed > 0) database_.run("DELETE FROM results WHERE number < ?", {last_kept < 0 ? std::numeric_limits<std::int64_t>::max() : last_kept});
  return removed;
}

}  // namespace lockstep
