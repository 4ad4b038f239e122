#include "worker/data/formats/token_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/npy_header.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

// Where the tokens of a file are, and how wide each is.
struct Layout {
  int64_t header_bytes = 0;
  int width = 1;
  bool is_signed = false;
  int64_t count = -1;  // -1: up to the end
  bool is_guess = false;
};

TokenSource::Format FormatOf(const std::string& path) {
  absl::string_view name = path;
  absl::ConsumeSuffix(&name, ".gz");
  if (absl::EndsWith(name, ".npy")) return TokenSource::NPY;
  if (absl::EndsWith(name, ".bin")) return TokenSource::UINT16;
  return TokenSource::BYTES;
}

template <typename... Parts>
absl::Status Bad(const InputFile& file, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", parts...));
}

absl::StatusOr<Layout> ReadNpyLayout(InputFile* file) {
  SYNCLINE_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
  if (header.kind == NpyHeader::Kind::kFloat ||
      header.kind == NpyHeader::Kind::kBool) {
    return Bad(*file, "tokens must be integers, but the header says ",
               QuotedStart(header.text));
  }
  if (header.shape.size() != 1) {
    return Bad(*file, "tokens must have one dimension, but there are ",
               header.shape.size());
  }
  return Layout{.header_bytes = header.bytes,
                .width = header.width,
                .is_signed = header.kind == NpyHeader::Kind::kSigned,
                .count = header.shape[0]};
}

absl::StatusOr<Layout> ReadLayout(InputFile* file, TokenSource::Format format) {
  const bool is_guess = format == TokenSource::FORMAT_UNSPECIFIED;
  if (is_guess) format = FormatOf(file->path());
  switch (format) {
    case TokenSource::UINT16:
      return Layout{.width = 2, .is_guess = is_guess};
    case TokenSource::UINT32:
      return Layout{.width = 4};
    case TokenSource::NPY:
      return ReadNpyLayout(file);
    default:
      return Layout{.width = 1};
  }
}

absl::StatusOr<std::vector<char>> ReadRest(InputFile* file,
                                           const MemoryBudget& memory) {
  constexpr size_t kStepMax = 8 << 20;
  const size_t step = std::min<uint64_t>(kStepMax, file->size_bound() + 1);
  const auto where = [&] { return file->path(); };
  std::vector<char> bytes;
  while (true) {
    const size_t before = bytes.size();
    SYNCLINE_RETURN_IF_ERROR(memory.Grow(step, where, &bytes));
    bytes.resize(before + step);
    SYNCLINE_ASSIGN_OR_RETURN(const size_t got,
                              file->Read(bytes.data() + before, step));
    bytes.resize(before + got);
    if (got < step) return bytes;
  }
}

}  // namespace

// Turns what a file holds into the tokens that are kept.
class TokenFileReader {
 public:
  TokenFileReader(InputFile* file, const Layout& layout,
                  const MemoryBudget& memory)
      : file_(*file), layout_(layout), memory_(memory) {
    result_.path_ = file->path();
    result_.header_bytes_ = layout.header_bytes;
    result_.file_width_ = layout.width;
  }

  absl::StatusOr<TokenFile> Take(std::vector<char> bytes, double begin,
                                 double end) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t count, Count(bytes.size()));
    if (layout_.is_guess) SYNCLINE_RETURN_IF_ERROR(CheckGuess(bytes));
    const int64_t from = std::llround(std::floor(begin * count));
    const int64_t to = std::llround(std::floor(end * count));
    result_.first_ = from;
    result_.size_ = to - from;
    bytes.resize(to * layout_.width);
    bytes.erase(bytes.begin(), bytes.begin() + from * layout_.width);
    if (layout_.width == 8) {
      SYNCLINE_RETURN_IF_ERROR(Narrow<int64_t>(bytes));
    } else if (layout_.is_signed && layout_.width == 4) {
      SYNCLINE_RETURN_IF_ERROR(Narrow<int32_t>(bytes));
    } else if (layout_.is_signed && layout_.width == 2) {
      SYNCLINE_RETURN_IF_ERROR(Narrow<int16_t>(bytes));
    } else if (layout_.is_signed) {
      SYNCLINE_RETURN_IF_ERROR(Narrow<int8_t>(bytes));
    } else {
      result_.width_ = layout_.width;
      memory_.Shrink(&bytes);
      result_.bytes_ = std::move(bytes);
    }
    return std::move(result_);
  }

 private:
  absl::StatusOr<int64_t> Count(int64_t bytes) const {
    const int64_t whole = bytes / layout_.width;
    if (layout_.count > whole) {
      return absl::DataLossError(
          absl::StrCat(file_.path(), ": truncated: ", layout_.count,
                       " tokens in the header, but bytes for ", whole));
    }
    if (layout_.count >= 0 ? layout_.count * layout_.width != bytes
                           : bytes % layout_.width != 0) {
      return Bad(file_, "byte ", layout_.header_bytes + whole * layout_.width,
                 ": bytes that are no whole token of ", layout_.width,
                 " bytes after the last of ", whole);
    }
    return whole;
  }

  template <typename T>
  absl::Status Narrow(const std::vector<char>& bytes) {
    result_.width_ = sizeof(uint32_t);
    SYNCLINE_RETURN_IF_ERROR(memory_.Grow(
        result_.size_ * sizeof(uint32_t), [&] { return result_.path_; },
        &result_.bytes_));
    result_.bytes_.resize(result_.size_ * sizeof(uint32_t));
    auto* const out = reinterpret_cast<uint32_t*>(result_.bytes_.data());
    for (int64_t i = 0; i < result_.size_; ++i) {
      T token;
      std::memcpy(&token, bytes.data() + i * sizeof(T), sizeof(T));
      if (int64_t{token} < 0 || int64_t{token} > int64_t{UINT32_MAX}) {
        return absl::InvalidArgumentError(absl::StrCat(
            result_.Where(i), ": ", int64_t{token}, " is no token"));
      }
      out[i] = static_cast<uint32_t>(token);
    }
    return absl::OkStatus();
  }

  // 16 bits a token is a guess by the name. Tokens of 32 bits are below 2^24,
  // so every second number is below 256 then, and of the others few are.
  absl::Status CheckGuess(const std::vector<char>& bytes) const {
    constexpr size_t kPairsMin = 64;
    constexpr uint16_t kSmall = 256;
    const size_t pairs = bytes.size() / (2 * sizeof(uint16_t));
    if (pairs < kPairsMin) return absl::OkStatus();
    size_t large = 0;
    for (size_t i = 0; i < pairs; ++i) {
      uint16_t pair[2];
      std::memcpy(pair, bytes.data() + i * sizeof(pair), sizeof(pair));
      if (pair[1] >= kSmall) return absl::OkStatus();
      if (pair[0] >= kSmall) ++large;
    }
    if (large < pairs / 2) return absl::OkStatus();
    return Bad(file_,
               "read as tokens of 16 bits, as a .bin file is, every second one "
               "is below 256: if they have 32 bits, set tokens.format: UINT32; "
               "if they do not, UINT16");
  }

  const InputFile& file_;
  const Layout layout_;
  const MemoryBudget& memory_;
  TokenFile result_;
};

absl::StatusOr<TokenFile> TokenFile::Load(const DataFile& data_file,
                                          TokenSource::Format format,
                                          double begin, double end,
                                          const MemoryBudget& memory) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto file,
      InputFile::Open(data_file, InputFile::Gzip::kByNameAndBytes));
  SYNCLINE_ASSIGN_OR_RETURN(const Layout layout,
                            ReadLayout(file.get(), format));
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<char> bytes,
                            ReadRest(file.get(), memory));
  return TokenFileReader(file.get(), layout, memory)
      .Take(std::move(bytes), begin, end);
}

uint32_t TokenFile::at(int64_t i) const {
  return WithTokens(
      [=](const auto* tokens) { return static_cast<uint32_t>(tokens[i]); });
}

std::string TokenFile::Where(int64_t i) const {
  const int64_t number = first_ + i;
  return absl::StrCat(path_, ": token ", number, " at byte ",
                      header_bytes_ + number * file_width_);
}

int64_t TokenFile::FindAtLeast(uint32_t vocabulary) const {
  return WithTokens([=, this](const auto* tokens) {
    const auto* const found =
        std::find_if(tokens, tokens + size_,
                     [=](uint32_t token) { return token >= vocabulary; });
    return found == tokens + size_ ? int64_t{-1} : found - tokens;
  });
}

}  // namespace syncline::worker
