// An SQLite database, reduced to statements, typed values and transactions. Write-ahead log, so every committed statement survives a kill. Knows no
// table. One thread at a time.
//   Database db("state/lockstep.db"); db.run("INSERT INTO t VALUES (?, ?)", {"name", 3}); db.rows("SELECT ...", {}, [](const Row& r) { ... });
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep {

// Bytes are told from text: they may hold anything.
struct Blob {
  std::string_view bytes;
};
using DatabaseValue = std::variant<std::nullptr_t, std::int64_t, double, std::string_view, Blob>;

class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
  std::int64_t integer(int column) const;
  std::string text(int column) const;  // or bytes; "" for NULL

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Makes the file where there is none. Errors: io; corrupt_file for a file that is no database.
  explicit Database(const std::filesystem::path& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Several statements without values: tables, pragmas.
  void execute(const std::string& statements);
  void run(const std::string& statement, const std::vector<DatabaseValue>& values = {});
  void rows(const std::string& statement, const std::vector<DatabaseValue>& values, const std::function<void(const Row&)>& each);

 private:
  sqlite3_stmt* prepared(const std::string& statement);
  [[noreturn]] void fail_with(int code, const std::string& doing);
  sqlite3* handle_ = nullptr;
  std::map<std::string, sqlite3_stmt*> statements_;  // kept: each is parsed once
};

}  // namespace lockstep
