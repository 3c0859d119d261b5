// A function that several object files define is taken from any one of them by the linker. So an object compiled for an
// instruction set may define no such symbol that the rest of the program could share: each one must carry the name of a
// type that is that instruction set's own.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Row of the kernel table -> names that mark a symbol as its own. Rows compiled for any machine may share everything.
// amx is compiled with avx512's flags and more that change nothing but its own file: those two may share.
const std::map<std::string, std::vector<std::string>> kOwnNames = {
    {"avx2", {"Avx2"}},
    {"avx512", {"Avx512", "FewRows"}},
    {"amx", {"Avx512", "FewRows", "Amx"}},
    {"neon_dotprod", {"NeonDotprod"}},
};

// The symbols of `nm -C` that the linker merges: weak, unique, common.
std::vector<std::string> merged_symbols(const std::string& nm) {
  std::vector<std::string> symbols;
  std::istringstream lines(nm);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::size_t kType = 17;  // after 16 digits and a space; undefined symbols have no digits
    if (line.size() < kType + 2 || line[0] == ' ' || line[kType + 1] != ' ') continue;
    if (std::string("WVuC").find(line[kType]) != std::string::npos) symbols.push_back(line.substr(kType + 2));
  }
  return symbols;
}

std::vector<std::string> not_its_own(const std::string& row, const std::vector<std::string>& symbols) {
  std::vector<std::string> bad;
  for (const std::string& symbol : symbols) {
    bool own = false;
    for (const std::string& name : kOwnNames.at(row)) own = own || symbol.find(name) != std::string::npos;
    if (!own) bad.push_back(symbol);
  }
  return bad;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, pipe)) text.append(part, n);
  return pclose(pipe) == 0 ? text : "";
}

TEST(IsaSymbols, NoneCanBeTakenForAnotherMachines) {
  int checked = 0;
  std::istringstream objects(CONCLAVE_ISA_OBJECTS);  // "avx2=path:avx512=path"
  for (std::string entry; std::getline(objects, entry, ':');) {
    const std::string row = entry.substr(0, entry.find('='));
    const std::string object = entry.substr(entry.find('=') + 1);
    if (!kOwnNames.contains(row)) continue;
    ++checked;
    const auto symbols = merged_symbols(output_of(CONCLAVE_NM " -C '" + object + "'"));
    EXPECT_FALSE(symbols.empty()) << object << ": was it read at all?";
    for (const std::string& symbol : not_its_own(row, symbols)) ADD_FAILURE() << row << " defines " << symbol;
  }
#if defined(__x86_64__)
  EXPECT_EQ(checked, 5) << "three rows, and the tests of two vector types";
#endif
}

TEST(IsaSymbols, TheTestItselfSeesASharedFunction) {
  const std::string nm =
      "                 U memcpy\n"
      "                 w __gmon_start__\n"
      "0000000000000000 T conclave::kAvx2Kernels\n"
      "0000000000000040 t conclave::(anonymous namespace)::local()\n"
      "0000000000000000 W conclave::Product<conclave::Avx2>::dot_peak(long, int*)\n"
      "0000000000000000 W std::vector<int, std::allocator<int> >::push_back(int const&)\n"
      "0000000000000000 V conclave::Product<conclave::Avx512>::kQ4K\n"
      "0000000000000000 u conclave::kShared\n";
  const auto symbols = merged_symbols(nm);
  ASSERT_EQ(symbols.size(), 4U);
  const std::vector<std::string> want = {"std::vector<int, std::allocator<int> >::push_back(int const&)",
                                         "conclave::Product<conclave::Avx512>::kQ4K", "conclave::kShared"};
  EXPECT_EQ(not_its_own("avx2", symbols), want);
}

}  // namespace
