#include "store/database.h"

#include <sqlite3.h>

#include "base/error.h"

namespace lockstep {

std::int64_t Row::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Row::text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  return bytes ? std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
}

Database::Database(const std::filesystem::path& path) {
  const int code = sqlite3_open_v2(path.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    if (code != SQLITE_OK) fail_with(code, "opening " + path.string());
    sqlite3_busy_timeout(handle_, 5000);
    execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;");
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [text, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

void Database::fail_with(int code, const std::string& doing) {
  const std::string why = handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  const bool corrupt = (code & 0xff) == SQLITE_NOTADB || (code & 0xff) == SQLITE_CORRUPT;
  fail(corrupt ? ErrorCode::corrupt_file : ErrorCode::io, "the database says '{}' ({})", why, doing);
}

void Database::execute(const std::string& statements) {
  const int code = sqlite3_exec(handle_, statements.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail_with(code, statements);
}

sqlite3_stmt* Database::prepared(const std::string& text) {
  sqlite3_stmt*& statement = statements_[text];
  if (!statement) {
    const int code = sqlite3_prepare_v2(handle_, text.c_str(), static_cast<int>(text.size()), &statement, nullptr);
    if (code != SQLITE_OK) fail_with(code, text);
  }
  return statement;
}

void Database::run(const std::string& statement, const std::vector<DatabaseValue>& values) {
  rows(statement, values, [](const Row&) {});
}

void Database::rows(const std::string& text, const std::vector<DatabaseValue>& values, const std::function<void(const Row&)>& each) {
  sqlite3_stmt* statement = prepared(text);
  struct Reset {
    sqlite3_stmt* statement;
    ~Reset() {
      sqlite3_reset(statement);
      sqlite3_clear_bindings(statement);
    }
  } reset{statement};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int at = static_cast<int>(i) + 1;
    const int code = std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::nullptr_t>) return sqlite3_bind_null(statement, at);
          else if constexpr (std::is_same_v<T, std::int64_t>) return sqlite3_bind_int64(statement, at, value);
          else if constexpr (std::is_same_v<T, double>) return sqlite3_bind_double(statement, at, value);
          else if constexpr (std::is_same_v<T, Blob>)
            return sqlite3_bind_blob64(statement, at, value.bytes.empty() ? "" : value.bytes.data(), value.bytes.size(), SQLITE_STATIC);
          else return sqlite3_bind_text64(statement, at, value.data() ? value.data() : "", value.size(), SQLITE_STATIC, SQLITE_UTF8);
        },
        values[i]);
    if (code != SQLITE_OK) fail_with(code, text);
  }
  for (;;) {
    const int code = sqlite3_step(statement);
    if (code == SQLITE_DONE) return;
    if (code != SQLITE_ROW) fail_with(code, text);
    each(Row(statement));
  }
}

}  // namespace lockstep
