// What one cut of a parameter has in common with another: every element of the second comes from exactly one piece of the first, in any two layouts.
#include "model/rows_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/philox.h"

namespace lockstep {
namespace {

std::int64_t height_of(const Parameter& p) { return p.layout == ParameterLayout::packed ? 16 : 1; }

// Shares that together are the whole: cut along items, outputs or inputs at random places, each share's rows dealt to some owners.
std::vector<RowsPlace> random_cut(RandomSequence& draws, const Parameter& p) {
  const int along = static_cast<int>(draws.below(3));
  const std::int64_t extent = along == 0 ? p.count : along == 1 ? p.outputs : p.inputs;
  std::vector<std::int64_t> bounds{0, extent};
  for (std::uint32_t cuts = draws.below(4); cuts > 0; --cuts) bounds.push_back(draws.below(static_cast<std::uint32_t>(extent) + 1));
  std::sort(bounds.begin(), bounds.end());
  std::vector<RowsPlace> all;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    RowsPlace share{.parameter = 4, .packed = p.layout == ParameterLayout::packed, .count = p.count, .outputs = p.outputs, .inputs = p.inputs};
    (along == 0 ? share.corner.item : along == 1 ? share.corner.output : share.corner.input) = bounds[i];
    (along == 0 ? share.count : along == 1 ? share.outputs : share.inputs) = bounds[i + 1] - bounds[i];
    const std::int64_t owners = 1 + draws.below(3);
    for (std::int64_t owner = 0; owner < owners; ++owner) {
      share.first = share.all_rows() * owner / owners;
      share.rows = share.all_rows() * (owner + 1) / owners - share.first;
      all.push_back(share);
    }
  }
  return all;
}

// A value that says which element it is; padding is -1.
float element_value(const Parameter& p, std::int64_t item, std::int64_t output, std::int64_t input) {
  return static_cast<float>((item * p.outputs + output) * p.inputs + input + 1);
}

std::vector<float> panel_values(const Parameter& p, const RowsPlace& place) {
  std::vector<float> values(static_cast<std::size_t>(place.size()), -1.0f);
  const std::int64_t height = height_of(p);
  for (std::int64_t row = 0; row < place.rows; ++row)
    for (std::int64_t k = 0; k < place.inputs; ++k)
      for (std::int64_t lane = 0; lane < height; ++lane) {
        const std::int64_t share_row = place.first + row, output = share_row % place.rows_of_item() * height + lane;
        if (output < place.outputs)
          values[static_cast<std::size_t>((row * place.inputs + k) * height + lane)] =
              element_value(p, place.corner.item + share_row / place.rows_of_item(), place.corner.output + output, place.corner.input + k);
      }
  return values;
}

TEST(RowsPlace, EveryElementIsFoundOnceWhateverWasCutAndWhateverIsRead) {
  RandomSequence draws(5, RandomStream::fuzz);
  std::int64_t compared = 0, in_parts = 0;
  for (int round = 0; round < 300; ++round) {
    Parameter p;
    p.layout = draws.below(2) == 0 ? ParameterLayout::packed : ParameterLayout::table;
    p.count = 1 + draws.below(4);
    p.outputs = 1 + draws.below(70);
    p.inputs = 1 + draws.below(20);
    const std::vector<RowsPlace> written = random_cut(draws, p), read = random_cut(draws, p);
    const std::int64_t block = height_of(p) * (1 + draws.below(40));  // values at once
    for (const RowsPlace& want : read) {
      std::vector<float> image(static_cast<std::size_t>(want.share_size()), -1.0f);
      std::int64_t found = 0, counted = 0;
      for (const RowsPlace& piece : written) {
        const std::vector<float> values = panel_values(p, piece);
        for (std::int64_t at = 0; at < piece.size(); at += block) {
          const std::int64_t size = std::min(block, piece.size() - at);
          counted += elements_in_both(piece, at, size, want);
          found += copy_elements(piece, at, std::span(values).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size)), want, image);
        }
      }
      ASSERT_EQ(found, elements_of(want)) << round;
      ASSERT_EQ(counted, found) << round;
      const std::vector<float> rows(image.begin() + want.first * want.width(), image.begin() + (want.first + want.rows) * want.width());
      ASSERT_EQ(rows, panel_values(p, want)) << round;  // padding included: nothing was written there
      const auto untouched = static_cast<std::int64_t>(std::count(image.begin(), image.begin() + want.first * want.width(), -1.0f)) +
                             std::count(image.begin() + (want.first + want.rows) * want.width(), image.end(), -1.0f);
      ASSERT_EQ(untouched, std::ssize(image) - std::ssize(rows)) << round;  // other rows of the share
      compared += std::ssize(rows);
      in_parts += want.rows < want.all_rows();
    }
  }
  EXPECT_GT(compared, 100000);
  EXPECT_GT(in_parts, 100);
}

// The control: a share that begins one output further on has other elements.
TEST(RowsPlace, AnotherCornerIsSeen) {
  Parameter p{.layout = ParameterLayout::packed, .count = 1, .outputs = 40, .inputs = 3};
  RowsPlace all{.count = 1, .outputs = 40, .inputs = 3, .first = 0, .rows = 3}, moved = all;
  moved.outputs = 20;
  moved.rows = 2;
  moved.corner.output = 5;
  const std::vector<float> values = panel_values(p, all);
  std::vector<float> image(static_cast<std::size_t>(moved.share_size()), -1.0f);
  EXPECT_EQ(copy_elements(all, 0, values, moved, image), 60);
  EXPECT_EQ(image, panel_values(p, moved));
  moved.corner.output = 4;
  EXPECT_NE(image, panel_values(p, moved));
  RowsPlace other = all;
  other.parameter = 7;
  EXPECT_EQ(elements_in_both(all, 0, all.size(), other), 0);
}

}  // namespace
}  // namespace lockstep
