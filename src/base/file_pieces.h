// A file's bytes in their order, a piece at a time: for digests of files that memory need not hold. Any thread.
//   for_file_pieces("model.safetensors", [&hash](std::string_view piece) { hash.update(piece); });
#pragma once
#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep {

// Every piece but the last has 8 MB, so a digest that is chained over pieces is the same everywhere. Error io for a file that cannot be read to its end.
void for_file_pieces(const std::filesystem::path& path, const std::function<void(std::string_view)>& take);

}  // namespace lockstep
