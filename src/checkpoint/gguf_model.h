// Presents a GGUF file as a Hugging Face folder: tensors by their Hugging Face names, and small files such as config.json. Nothing is written; texts
// are made when they are read. Several threads may read.
//   const GgufTensors tensors(GgufFile::open(path)); tensors.find("model.embed_tokens.weight");
//   const GgufFolder folder(GgufFile::open(path)); folder.read("config.json", 1 << 20);
#pragma once
#include <filesystem>
#include <unordered_map>

#include "base/folder_files.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

class GgufTensors final : public TensorFile {
 public:
  // Errors: those of GgufFile and gguf_config; corrupt_file for rows that cannot be cut into heads or experts.
  explicit GgufTensors(GgufFile file);

  const std::string& label() const override { return file_.label(); }
  // Type: f32, bf16, f16; of a quantised tensor f32, into which it is decoded. A tensor that the architecture does not name has its own name.
  const std::vector<SafetensorsTensor>& tensors() const override { return tensors_; }
  const SafetensorsTensor* find(std::string_view name) const override;
  // Where rows are paired, whole rows alone can be read.
  void read(const SafetensorsTensor& tensor, std::span<float> values, std::int64_t first = 0) const override;
  void read_bytes(const SafetensorsTensor& tensor, std::span<std::uint8_t> bytes, std::uint64_t first) const override;
  std::vector<std::int64_t> read_integers(const SafetensorsTensor& tensor) const override;
  std::string format() const override;
  void count_types(StoredTypes& types) const override;

 private:
  struct Source {
    const GgufTensor* tensor;
    std::int64_t first = 0;  // element of it
    std::int64_t heads = 0;  // whose rows are paired; 0: none
  };
  void add(const GgufTensor& tensor, std::string name, std::vector<std::int64_t> shape, Source source);

  GgufFile file_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<Source> sources_;  // of tensors_
  std::unordered_map<std::string_view, std::size_t> index_;
};

class GgufFolder final : public FolderFiles {
 public:
  explicit GgufFolder(GgufFile file) : file_(std::move(file)) {}
  // config.json, generation_config.json, tokenizer.json, tokenizer_config.json and chat_template.jinja; has: what the metadata say something of.
  bool has(const std::string& name) const override;
  std::string read(const std::string& name, std::size_t most_bytes) const override;
  std::string label() const override { return file_.label(); }
  std::string place(const std::string& name) const override;

 private:
  GgufFile file_;
};

}  // namespace lockstep
