# A steel cantilever of 60 x 2 x 2 bricks, elastic and plastic, held at one end.
awk 'BEGIN {
    n = 60
    print "*NODE, NSET=ALL"
    for (i = 0; i <= n; i++) for (j = 0; j < 3; j++) for (k = 0; k < 3; k++)
        print 1 + 9 * i + 3 * j + k ", " i / 2 ", " j / 2 ", " k / 2
    print "*ELEMENT, TYPE=C3D8, ELSET=BEAM"
    for (i = 0; i < n; i++) for (j = 0; j < 2; j++) for (k = 0; k < 2; k++) {
        a = 1 + 9 * i + 3 * j + k
        print ++e ", " a ", " a + 9 ", " a + 12 ", " a + 3 ", " a + 1 ", " a + 10 ", " a + 13 ", " a + 4
    }
    print "*NSET, NSET=FIX"
    for (a = 1; a <= 9; a++) print a ","
    print "*NSET, NSET=TIP"
    for (a = 1; a <= 9; a++) print 9 * n + a ","
    print "*BOUNDARY\nFIX, 1, 3\n*MATERIAL, NAME=STEEL\n*ELASTIC\n210000., 0.3\n*PLASTIC\n200., 0.\n400., 0.1"
    print "*SOLID SECTION, ELSET=BEAM, MATERIAL=STEEL"
}'
