// The small text files of a model by name (config.json, tokenizer.json, ...), as an interface: files of a folder, or made from a GGUF file. Readers
// of such files take it, so they do not know where a model comes from. Any thread.
//   const FolderOnDisk files("models/m"); if (files.has("tokenizer.json")) text = files.read("tokenizer.json", 1 << 20);
#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

class FolderFiles {
 public:
  virtual ~FolderFiles() = default;
  virtual bool has(const std::string& name) const = 0;
  // Errors: not_found, io, resource_exhausted above most_bytes; those of whatever makes the text.
  virtual std::string read(const std::string& name, std::size_t most_bytes) const = 0;
  // The model and one of its files, for messages: "models/m", "models/m/config.json".
  virtual std::string label() const = 0;
  virtual std::string place(const std::string& name) const = 0;
};

class FolderOnDisk final : public FolderFiles {
 public:
  explicit FolderOnDisk(std::filesystem::path folder) : folder_(std::move(folder)) {}
  bool has(const std::string& name) const override;
  std::string read(const std::string& name, std::size_t most_bytes) const override;
  std::string label() const override { return folder_.string(); }
  std::string place(const std::string& name) const override { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep
