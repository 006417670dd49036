// Any bytes as a GGUF file: an Error, or a file whose tensors are read, and whose metadata give a config.json, a tokenizer and a template.
// sources: src/checkpoint/gguf_*.cpp src/model/archs/gguf_names.cpp src/checkpoint/json_file.cpp src/checkpoint/safetensors_header.cpp src/text/*.cpp
// sources: src/text/tokenizer/*.cpp
#include <cstdint>
#include <string>

#include "base/error.h"
#include "checkpoint/gguf_model.h"
#include "text/tokenizer/tokenizer.h"

using namespace lockstep;

namespace {
// Whatever is wrong is the file's fault.
template <class F>
void try_to(F&& work) {
  try {
    work();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported && e.code() != ErrorCode::resource_exhausted &&
        e.code() != ErrorCode::not_found)
      __builtin_trap();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_to([&] {
    const GgufFile file = GgufFile::from_bytes(bytes, "fuzz");
    for (const GgufTensor& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) __builtin_trap();
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      file.read(tensor, values);
    }
  });
  try_to([&] {
    const GgufTensors tensors(GgufFile::from_bytes(bytes, "fuzz"));
    for (const SafetensorsTensor& tensor : tensors.tensors())
      if (tensors.read_all(tensor).size() != static_cast<std::size_t>(tensor.elements())) __builtin_trap();
  });
  try_to([&] {
    const GgufFolder folder(GgufFile::from_bytes(bytes, "fuzz"));
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"})
      try_to([&] {
        if (folder.has(name)) folder.read(name, std::size_t{64} << 20);
      });
    try_to([&] {
      if (!folder.has("tokenizer.json")) return;
      const Tokenizer tokenizer = Tokenizer::from_folder(folder);
      (void)tokenizer.decode(tokenizer.encode("a b 12 \xC3\xA9 <x>", true), false);
    });
  });
  return 0;
}
