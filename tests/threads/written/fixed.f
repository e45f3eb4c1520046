      PROGRAM FIXED
      INTEGER N, I, J, K
      PARAMETER (N=20)
      REAL*8 A(N,N), S, F, X
      COMMON /BLK/ A, S
      F(X) = X * 2.0D0 + 
     &       1.0D0
      DATA K /3/
C     comment
      S = 0.0D0
      DO 10 J = 1, N
      DO 10 I = 1, N
   10 A(I,J) = I + J
c$omp parallel do private(i)
c$omp+ reduction(+:s)
      DO 30 J = 1, N
         DO 20 I = 1, N
            IF (I .EQ. J) GO TO 20
            A(I,J) = A(I,J) + F(DBLE(I)) + 1.0D0 + 2.0D0 + 3.0D0 + 4.
     &             0D0
            S = S + A(I,J)
   20    CONTINUE
   30 CONTINUE
!$omp end parallel do
C$OMP PARALLEL DEFAULT(SHARED) PRIVATE(I,J)
C$OMP DO
      DO J = 1, N
         DO I = 1, N
            A(I,J) = A(I,J) / 2
         END DO
      END DO
C$OMP END DO
C$OMP END PARALLEL
      CALL SUB(A, N, *100)
  100 CONTINUE
      IF (S .GT. 1.0D0) THEN
         S = S / 2
      ELSE IF (S .LT. -1.0D0) THEN
         S = -S
      END IF
      WRITE (*, 200) S, A(3,4)
  200 FORMAT (1X, 'VALUES ', 2F12.4)
      END
      SUBROUTINE SUB(A, N, *)
      DIMENSION A(N,N)
      REAL*8 A
      ENTRY SUB2(A, N, *)
      DO 5, I = 1, N
    5 A(I,1) = 0
      A(1,1) = 7.5; A(2,1) = 3
      RETURN 1
      END
