#include "parallel/chosen_rows.h"

#include <cstring>

#include "base/error.h"

namespace lockstep {

void exchange_chosen(Communicator& group, Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                     const std::vector<RowChoice>& from_rows) {
  if (auto* packs = dynamic_cast<ChosenRowsTransport*>(&group)) return packs->exchange_chosen(stream, to, from, to_rows, from_rows);
  group.exchange(stream, to, from);
}

std::vector<std::int64_t> chosen_rows(Stream& stream, const RowChoice& choice) {
  const std::vector<std::int32_t> index = stream.read_ints(choice.index).get();
  std::vector<std::int64_t> rows;
  for (std::int64_t t = 0; t < choice.index.rows; ++t)
    for (std::int64_t j = 0; j < choice.index.cols; ++j) {
      const std::int32_t at = index[static_cast<std::size_t>(t * choice.index.cols + j)];
      if (at < choice.begin || at >= choice.end) continue;
      rows.push_back(t);
      break;
    }
  return rows;
}

std::string only_rows(const std::string& all, const std::vector<std::int64_t>& rows, std::size_t row) {
  std::string some;
  some.reserve(rows.size() * row);
  for (const std::int64_t t : rows) some.append(all, static_cast<std::size_t>(t) * row, row);
  return some;
}

std::string with_other_rows(const std::string& some, const std::vector<std::int64_t>& rows, std::size_t row, std::size_t bytes) {
  if (some.size() != rows.size() * row) fail(ErrorCode::internal, "{} rows of {} bytes were chosen, and {} bytes came", rows.size(), row, some.size());
  std::string all(bytes, '\0');
  for (std::size_t i = 0; i < rows.size(); ++i) std::memcpy(all.data() + static_cast<std::size_t>(rows[i]) * row, some.data() + i * row, row);
  return all;
}

}  // namespace lockstep
