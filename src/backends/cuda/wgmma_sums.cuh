// The sums of a warpgroup's matrix instruction as asm takes them: `c` from i on as operands, and the names of the first ones.
#pragma once

#define CONCLAVE_SUMS_8(i)                                                                                    \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])
#define CONCLAVE_SUMS_16(i) CONCLAVE_SUMS_8(i), CONCLAVE_SUMS_8(i + 8)
#define CONCLAVE_SUMS_32(i) CONCLAVE_SUMS_16(i), CONCLAVE_SUMS_16(i + 16)
#define CONCLAVE_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define CONCLAVE_NAMES_16 CONCLAVE_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define CONCLAVE_NAMES_24 CONCLAVE_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define CONCLAVE_NAMES_32 CONCLAVE_NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define CONCLAVE_NAMES_40 CONCLAVE_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define CONCLAVE_NAMES_48 CONCLAVE_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define CONCLAVE_NAMES_56 CONCLAVE_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define CONCLAVE_NAMES_64 CONCLAVE_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define CONCLAVE_NAMES_72 CONCLAVE_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define CONCLAVE_NAMES_80 CONCLAVE_NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
