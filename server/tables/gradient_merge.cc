#include "server/tables/gradient_merge.h"

#include <algorithm>

#include "kernels/optimizer/optimizer.h"

namespace syncline::ps {
namespace {

// Floats of one worker held at a time; longer rows are added in such pieces.
constexpr size_t kPieceFloats = 2048;

}  // namespace

void GradientMerge::Start(absl::Span<const GradientRows> ranks) {
  ranks_ = ranks;
  next_row_ = 0;
  cursors_.clear();
  if (ranks.size() <= 1) return;
  if (pieces_.size() < ranks.size()) pieces_.resize(ranks.size());
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    pieces_[rank].begin = pieces_[rank].end = 0;
    if (!ranks[rank].keys.empty()) PushCursor(rank, 0);
  }
}

size_t GradientMerge::Next(size_t limit, int64_t* keys, float* sums) {
  if (ranks_.empty()) return 0;
  return ranks_.size() == 1 ? NextOfOne(limit, keys, sums)
                            : NextOfMany(limit, keys, sums);
}

size_t GradientMerge::NextOfOne(size_t limit, int64_t* keys, float* sums) {
  const GradientRows& rows = ranks_[0];
  const size_t count = std::min(limit, rows.keys.size() - next_row_);
  if (count == 0) return 0;
  std::copy_n(rows.keys.begin() + next_row_, count, keys);
  rows.values->CopyTo(rows.first + next_row_ * dim_, count * dim_, sums);
  next_row_ += count;
  return count;
}

size_t GradientMerge::NextOfMany(size_t limit, int64_t* keys, float* sums) {
  size_t count = 0;
  while (count < limit && !cursors_.empty()) {
    const int64_t key = cursors_.front().key;
    float* const sum = sums + count * dim_;
    bool first = true;
    // The heap gives rows of one key by rank.
    while (!cursors_.empty() && cursors_.front().key == key) {
      const Cursor cursor = PopCursor();
      AddRow(cursor, first, sum);
      first = false;
      if (cursor.row + 1 < ranks_[cursor.rank].keys.size()) {
        PushCursor(cursor.rank, cursor.row + 1);
      }
    }
    keys[count++] = key;
  }
  return count;
}

bool GradientMerge::Later(const Cursor& a, const Cursor& b) {
  if (a.slot != b.slot) return a.slot > b.slot;
  if (a.key != b.key) return a.key > b.key;
  return a.rank > b.rank;
}

void GradientMerge::PushCursor(uint32_t rank, size_t row) {
  const int64_t key = ranks_[rank].keys[row];
  cursors_.push_back({map_.SlotOf(key), key, rank, row});
  std::push_heap(cursors_.begin(), cursors_.end(), Later);
}

GradientMerge::Cursor GradientMerge::PopCursor() {
  std::pop_heap(cursors_.begin(), cursors_.end(), Later);
  const Cursor cursor = cursors_.back();
  cursors_.pop_back();
  return cursor;
}

void GradientMerge::AddRow(const Cursor& cursor, bool first, float* sum) {
  if (dim_ <= kPieceFloats) {
    const float* const values = Values(cursor);
    if (first) {
      std::copy_n(values, dim_, sum);
    } else {
      AddTo(values, sum, dim_);
    }
    return;
  }
  const GradientRows& rows = ranks_[cursor.rank];
  const size_t begin = rows.first + cursor.row * dim_;
  if (first) return rows.values->CopyTo(begin, dim_, sum);
  addend_.resize(kPieceFloats);
  for (size_t i = 0; i < dim_; i += kPieceFloats) {
    const size_t count = std::min(kPieceFloats, dim_ - i);
    rows.values->CopyTo(begin + i, count, addend_.data());
    AddTo(addend_.data(), sum + i, count);
  }
}

const float* GradientMerge::Values(const Cursor& cursor) {
  Piece& piece = pieces_[cursor.rank];
  if (cursor.row >= piece.end) {
    const GradientRows& rows = ranks_[cursor.rank];
    piece.begin = cursor.row;
    piece.end = std::min(rows.keys.size(), cursor.row + kPieceFloats / dim_);
    piece.values.resize(kPieceFloats);
    rows.values->CopyTo(rows.first + piece.begin * dim_,
                        (piece.end - piece.begin) * dim_, piece.values.data());
  }
  return piece.values.data() + (cursor.row - piece.begin) * dim_;
}

}  // namespace syncline::ps
