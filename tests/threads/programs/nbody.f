C     Bodies that attract each other, fixed form; the energy is a
C     reduction over the pairs.
      PROGRAM NBODY
      IMPLICIT NONE
      INTEGER N, STEPS
      PARAMETER (N = 24, STEPS = 5)
      REAL*8 X(3,N), V(3,N), F(3,N), D(3), R2, W, DT
      REAL*8 ENERGY
      INTEGER I, J, K, STEP
      DO 10 I = 1, N
        DO 10 K = 1, 3
          X(K,I) = MOD(I * (2 * K + 3), 19) + 0.1D0 * K
          V(K,I) = 0
   10 CONTINUE
      DT = 0.01D0
      DO 100 STEP = 1, STEPS
C$OMP PARALLEL DO DEFAULT(SHARED)
C$OMP+PRIVATE(I, J, K, D, R2, W) SCHEDULE(RUNTIME)
        DO 40 I = 1, N
          DO K = 1, 3
            F(K,I) = 0
          END DO
          DO 30 J = 1, N
            IF (J .EQ. I) GOTO 30
            R2 = 0.01D0
            DO K = 1, 3
              D(K) = X(K,J) - X(K,I)
              R2 = R2 + D(K)**2
            END DO
            W = 1 / (R2 * SQRT(R2))
            DO K = 1, 3
              F(K,I) = F(K,I) + W * D(K)
            END DO
   30     CONTINUE
   40   CONTINUE
C$OMP END PARALLEL DO
        ENERGY = 0
C$OMP PARALLEL DO PRIVATE(K) REDUCTION(+:ENERGY) SCHEDULE(RUNTIME)
        DO I = 1, N
          DO K = 1, 3
            V(K,I) = V(K,I) + DT * F(K,I)
            X(K,I) = X(K,I) + DT * V(K,I)
            ENERGY = ENERGY + V(K,I)**2 / 2
          END DO
        END DO
C$OMP END PARALLEL DO
  100 CONTINUE
      PRINT '(A, ES23.15)', 'energy   ', ENERGY
      PRINT '(A, 2ES23.15)', 'checksum ', SUM(X), SUM(ABS(V))
      END
